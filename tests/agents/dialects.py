"""How an action of the script is said to each agent: the tool's name, its arguments, and the events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Protocol

Body = dict[str, Any]
Answer = Iterable[str] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shell:
    """Run a command in the agent's shell tool."""

    command: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read a file: some agents want that before they edit it."""

    path: str


@dataclass(frozen=True, slots=True)
class Write:
    """Write a whole file with the agent's own tool."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace a text in a file with the agent's own tool."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Say:
    """Say something and end the turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Do not answer."""


Action = Shell | Read | Write | Edit | Say | Hold

_calls: Final = count(1)


class Dialect(Protocol):
    """One wire format of a model's provider."""

    def offers_tools(self, body: Body) -> bool:
        """Whether this is a request of the conversation, not one beside it."""

    def results(self, body: Body) -> int:
        """How many tool results the conversation holds."""

    def answer(self, action: Action, body: Body, path: str) -> Answer:
        """The events of a stream, or one JSON document."""


def dialect_of(path: str) -> Dialect | None:
    """Return the dialect that is spoken at a path."""
    if path.endswith("/messages"):
        return _Anthropic()
    if path.endswith("/responses"):
        return _Responses()
    if path.endswith("/chat/completions"):
        return _Chat()
    if "GenerateContent" in path or path.endswith(":generateContent"):
        return _Gemini()
    return None


def _event(data: Mapping[str, Any], *, named: bool = True) -> str:
    head = f"event: {data['type']}\n" if named else ""
    return f"{head}data: {json.dumps(data)}\n\n"


class _Anthropic:
    """Anthropic Messages, streamed, with Claude Code's tools."""

    def offers_tools(self, body: Body) -> bool:
        return bool(body.get("tools"))

    def results(self, body: Body) -> int:
        return sum(
            part.get("type") == "tool_result"
            for message in body["messages"]
            if isinstance(message["content"], list)
            for part in message["content"]
        )

    def answer(self, action: Action, body: Body, path: str) -> Answer:
        stop = "end_turn" if isinstance(action, Say) else "tool_use"
        block, delta = self._block(action)
        usage = {"input_tokens": 100, "output_tokens": 10}
        message: Body = {
            "id": f"msg_{next(_calls):04}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        if not body.get("stream"):
            whole = {**block, **({"text": action.text} if isinstance(action, Say) else {})}
            return {**message, "content": [whole], "stop_reason": stop}
        ends = {"stop_reason": stop, "stop_sequence": None}
        return [
            _event({"type": "message_start", "message": message}),
            _event({"type": "content_block_start", "index": 0, "content_block": block}),
            _event({"type": "content_block_delta", "index": 0, "delta": delta}),
            _event({"type": "content_block_stop", "index": 0}),
            _event({"type": "message_delta", "delta": ends, "usage": usage}),
            _event({"type": "message_stop"}),
        ]

    def _block(self, action: Action) -> tuple[Body, Body]:
        if isinstance(action, Say):
            return {"type": "text", "text": ""}, {"type": "text_delta", "text": action.text}
        name, arguments = self._tool(action)
        block = {"type": "tool_use", "id": f"toolu_{next(_calls):04}", "name": name, "input": {}}
        return block, {"type": "input_json_delta", "partial_json": json.dumps(arguments)}

    def _tool(self, action: Action) -> tuple[str, Body]:
        match action:
            case Shell(command):
                return "Bash", {"command": command, "description": "Run it"}
            case Read(path):
                return "Read", {"file_path": path}
            case Write(path, content):
                return "Write", {"file_path": path, "content": content}
            case Edit(path, old, new):
                return "Edit", {"file_path": path, "old_string": old, "new_string": new}
        raise AssertionError(action)


class _Responses:
    """OpenAI Responses, streamed, with Codex's tools."""

    def offers_tools(self, body: Body) -> bool:
        return bool(body.get("tools"))

    def results(self, body: Body) -> int:
        kinds = ("function_call_output", "custom_tool_call_output")
        return sum(item.get("type") in kinds for item in body["input"])

    def answer(self, action: Action, body: Body, path: str) -> Answer:
        number = next(_calls)
        response = {"id": f"resp_{number:04}"}
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        details = {"input_tokens_details": None, "output_tokens_details": None}
        item = self._item(action, {tool.get("name") for tool in body["tools"]}, number)
        return [
            _event({"type": "response.created", "response": response}),
            _event({"type": "response.output_item.done", "output_index": 0, "item": item}),
            _event(
                {
                    "type": "response.completed",
                    "response": {**response, "output": [item], "usage": {**usage, **details}},
                }
            ),
        ]

    def _item(self, action: Action, tools: set[str], number: int) -> Body:
        if isinstance(action, Say):
            text = {"type": "output_text", "text": action.text, "annotations": []}
            return {
                "type": "message",
                "id": f"msg_{number:04}",
                "role": "assistant",
                "content": [text],
            }
        if isinstance(action, Write | Edit) and "apply_patch" in tools:
            return {
                "type": "custom_tool_call",
                "id": f"ctc_{number:04}",
                "call_id": f"call_{number:04}",
                "name": "apply_patch",
                "input": _patch(action),
            }
        name, arguments = self._tool(action, tools)
        return {
            "type": "function_call",
            "id": f"fc_{number:04}",
            "call_id": f"call_{number:04}",
            "name": name,
            "arguments": json.dumps(arguments),
        }

    def _tool(self, action: Action, tools: set[str]) -> tuple[str, Body]:
        if isinstance(action, Shell):
            command = action.command
        elif isinstance(action, Read):
            command = f"cat {action.path}"
        elif isinstance(action, Write | Edit):
            command = f"apply_patch <<'PATCH'\n{_patch(action)}PATCH"
        else:
            raise AssertionError(action)
        if "exec_command" in tools:
            return "exec_command", {"cmd": command}
        if "shell_command" in tools:
            return "shell_command", {"command": command}
        return "shell", {"command": ["bash", "-c", command]}


def _patch(action: Write | Edit) -> str:
    if isinstance(action, Write):
        lines = "".join(f"+{line}\n" for line in action.content.splitlines())
        return f"*** Begin Patch\n*** Add File: {action.path}\n{lines}*** End Patch\n"
    return (
        f"*** Begin Patch\n*** Update File: {action.path}\n@@\n-{action.old}\n+{action.new}\n"
        "*** End Patch\n"
    )


class _Gemini:
    """Gemini's generateContent, streamed or not, with Gemini CLI's tools."""

    def offers_tools(self, body: Body) -> bool:
        return any(tool.get("functionDeclarations") for tool in body.get("tools") or ())

    def results(self, body: Body) -> int:
        return sum(
            "functionResponse" in part
            for content in body["contents"]
            for part in content.get("parts") or ()
        )

    def answer(self, action: Action, body: Body, path: str) -> Answer:
        if isinstance(action, Say):
            wants_json = "responseJsonSchema" in (body.get("generationConfig") or {})
            part: Body = {
                "text": json.dumps({"next_speaker": "user"}) if wants_json else action.text
            }
        else:
            name, arguments = self._tool(action)
            part = {"functionCall": {"name": name, "args": arguments}}
        document = {
            "candidates": [
                {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
            ],
            "usageMetadata": {
                "promptTokenCount": 100,
                "candidatesTokenCount": 10,
                "totalTokenCount": 110,
            },
        }
        if "streamGenerateContent" in path:
            return [_event(document, named=False)]
        return document

    def _tool(self, action: Action) -> tuple[str, Body]:
        match action:
            case Shell(command):
                return "run_shell_command", {"command": command, "description": "Run it"}
            case Read(path):
                return "read_file", {"file_path": path}
            case Write(path, content):
                return "write_file", {"file_path": path, "content": content}
            case Edit(path, old, new):
                return "replace", {
                    "file_path": path,
                    "old_string": old,
                    "new_string": new,
                    "instruction": "Replace the text.",
                }
        raise AssertionError(action)


class _Chat:
    """OpenAI chat completions, streamed, with opencode's tools."""

    def offers_tools(self, body: Body) -> bool:
        return bool(body.get("tools"))

    def results(self, body: Body) -> int:
        return sum(message["role"] == "tool" for message in body["messages"])

    def answer(self, action: Action, body: Body, path: str) -> Answer:
        if isinstance(action, Say):
            message: Body = {"role": "assistant", "content": action.text}
            reason = "stop"
        else:
            name, arguments = self._tool(action)
            call = {
                "index": 0,
                "id": f"call_{next(_calls):04}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            message, reason = (
                {"role": "assistant", "content": None, "tool_calls": [call]},
                "tool_calls",
            )
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        head = {"id": f"chatcmpl-{next(_calls):04}", "created": 0, "model": body.get("model")}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        head["object"] = "chat.completion.chunk"
        first = {"index": 0, "delta": message, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": reason}
        return [
            _event({**head, "choices": [first]}, named=False),
            _event({**head, "choices": [last], "usage": usage}, named=False),
            "data: [DONE]\n\n",
        ]

    def _tool(self, action: Action) -> tuple[str, Body]:
        match action:
            case Shell(command):
                return "bash", {"command": command, "description": "Run it"}
            case Read(path):
                return "read", {"filePath": path}
            case Write(path, content):
                return "write", {"filePath": path, "content": content}
            case Edit(path, old, new):
                return "edit", {"filePath": path, "oldString": old, "newString": new}
        raise AssertionError(action)
