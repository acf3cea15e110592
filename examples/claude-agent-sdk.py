"""A conversation with Claude that goes on wherever its transcript can be read.

    pip install 'holdfast[claude-agent-sdk]'
    python examples/claude-agent-sdk.py "I am Ann"
    python examples/claude-agent-sdk.py "Who am I?"     # another process; with PostgreSQL another machine

Transcripts are kept in agents.db. Needs what the SDK needs, such as ANTHROPIC_API_KEY.
"""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, list_sessions_from_store, query

from holdfast.integrations.claude_agent_sdk import HoldfastSessionStore


async def main(prompt):
    store = HoldfastSessionStore("agents.db")
    earlier = await list_sessions_from_store(store, directory=".")
    options = ClaudeAgentOptions(
        session_store=store, resume=earlier[0].session_id if earlier else None
    )
    async for message in query(prompt=prompt, options=options):
        if isinstance(message, ResultMessage):
            print(message.result)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
