// Holdfast's plugin for opencode. `holdfast hooks install opencode` wrote it and replaces it; changes get lost.
//
// It tells `holdfast hook` what happens, one JSON object per call on standard input, in the words that
// the other agents use. A call that fails or takes too long never disturbs opencode.
import { spawn } from "node:child_process"

const PROGRAM = ["holdfast", "hook", "--agent", "opencode"]
const PATIENCE = 30_000

const call = (payload) =>
  new Promise((resolve) => {
    const answer = []
    try {
      const child = spawn(PROGRAM[0], PROGRAM.slice(1), {
        cwd: payload.cwd,
        stdio: ["pipe", "pipe", "ignore"],
      })
      const timer = setTimeout(() => child.kill("SIGKILL"), PATIENCE)
      const done = () => {
        clearTimeout(timer)
        resolve(Buffer.concat(answer).toString())
      }
      child.on("error", done)
      child.on("close", done)
      child.stdin.on("error", () => {})
      child.stdout.on("data", (data) => answer.push(data))
      child.stdin.end(JSON.stringify(payload))
    } catch {
      resolve("")
    }
  })

const contextIn = (answer) => {
  try {
    return JSON.parse(answer).hookSpecificOutput.additionalContext ?? ""
  } catch {
    return ""
  }
}

export const Holdfast = async ({ client, directory }) => {
  const parents = new Map() // the session that started a subagent, by the subagent's own
  const briefs = new Map() // what to know before going on, by session; a promise from the first sight on
  const deleted = new Set() // sessions of which more may be heard, and nothing is told any more
  const waiting = new Set() // calls under way, which are waited for at the end

  const send = (event, session, more = {}) => {
    const parent = parents.get(session)
    const payload = {
      hook_event_name: event,
      session_id: parent ?? session,
      cwd: directory,
      ...(parent ? { agent_id: session } : {}),
      ...more,
    }
    const sent = call(payload)
    waiting.add(sent)
    return sent.finally(() => waiting.delete(sent))
  }

  const start = (session, source) => {
    if (!briefs.has(session)) {
      const event = parents.has(session) ? "SubagentStart" : "SessionStart"
      briefs.set(session, send(event, session, { source }).then(contextIn))
    }
    return briefs.get(session)
  }

  const messages = async (session) => {
    try {
      return (await client.session.messages({ path: { id: session } })).data ?? []
    } catch {
      return []
    }
  }

  const stop = async (session) => {
    await start(session, "resume")
    const event = parents.has(session) ? "SubagentStop" : "Stop"
    await send(event, session, { messages: await messages(session) })
  }

  const tracked = (work) => {
    waiting.add(work)
    return work.finally(() => waiting.delete(work))
  }

  return {
    event: async ({ event }) => {
      const session = event.properties?.sessionID ?? event.properties?.info?.id
      if (event.type === "session.created") {
        const parent = event.properties.info?.parentID
        if (parent) parents.set(session, parents.get(parent) ?? parent)
        await start(session, "startup")
      } else if (event.type === "session.idle" && !deleted.has(session)) {
        await tracked(stop(session))
      } else if (event.type === "session.deleted" && briefs.has(session)) {
        briefs.delete(session)
        deleted.add(session)
        // A subagent has ended when it was idle, and the session in which it worked goes on.
        if (!parents.has(session)) await send("SessionEnd", session, { reason: "deleted" })
      }
    },

    "chat.message": async (input, output) => {
      await start(input.sessionID, "resume")
      const texts = output.parts.filter((part) => part.type === "text" && !part.synthetic)
      const prompt = texts.map((part) => part.text).join("\n")
      await send("UserPromptSubmit", input.sessionID, { prompt })
    },

    "tool.execute.before": async (input, output) => {
      await start(input.sessionID, "resume")
      await send("PreToolUse", input.sessionID, {
        tool_name: input.tool,
        tool_input: output.args,
        tool_use_id: input.callID,
        messages: await messages(input.sessionID),
      })
    },

    "tool.execute.after": async (input, output) => {
      await send("PostToolUse", input.sessionID, {
        tool_name: input.tool,
        tool_input: input.args,
        tool_use_id: input.callID,
        tool_response: output,
      })
    },

    "experimental.session.compacting": async (input) => {
      await start(input.sessionID, "resume")
      await send("PreCompact", input.sessionID, { messages: await messages(input.sessionID) })
    },

    "experimental.chat.system.transform": async (input, output) => {
      // The request for a title of the conversation comes this way, too, and has no use for it.
      const isTitle = /title generator/i.test(output.system[0] ?? "")
      const brief = isTitle ? "" : await briefs.get(input.sessionID)
      if (brief) output.system.push(brief)
    },

    dispose: async () => {
      while (waiting.size) await Promise.allSettled([...waiting])
      for (const session of briefs.keys()) {
        if (!parents.has(session)) await send("SessionEnd", session, { reason: "exit" })
      }
    },
  }
}
