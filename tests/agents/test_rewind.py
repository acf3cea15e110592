"""The real programs go on from an earlier point of a conversation, which Holdfast wrote down for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.conftest import Desk
from tests.agents.dialects import Say, Shell


def resumed(command: list[str], session_id: str) -> list[str]:
    """Return a command line that goes on with one conversation instead of the last."""
    swap = {"--continue": ["--resume", session_id], "--last": [session_id], "latest": [session_id]}
    return [word for one in command for word in swap.get(one, [one])]


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini"], indirect=True)
def test_it_goes_on_from_where_its_files_are(desk: Desk) -> None:
    # The script goes by the tools that the conversation has results of, those of before included, and some
    # programs tell of a result twice.
    one, two = Shell("echo one > one.txt"), Shell("echo two > two.txt")
    desk.work([one, Say("The first answer.")])
    (turn,) = [it for it in desk.checkpoints() if (it["did"] or {}).get("event") == "stop"]
    desk.work([one, two, two, *[Say("The second answer.")] * 3], go_on=True)
    assert (desk.project / "two.txt").exists()

    back = desk.holdfast("rollback", turn["id"], "--with-conversation", "--yes")["rollback"]

    assert (desk.project / "one.txt").exists()
    assert not (desk.project / "two.txt").exists()
    then = back["conversation"]
    others = set(Path(then["path"]).parent.glob("*.jsonl")) - {Path(then["path"])}
    # Gemini CLI also leaves files without a conversation behind, and clears them away when it starts.
    told = {path: before for path in others if b"second answer" in (before := path.read_bytes())}
    assert told
    desk.model.play([one, *[Say("Another second answer.")] * 3])
    desk.program.run(resumed(desk.program.go_on("Try another way"), then["session_id"]))
    assert "The first answer." in desk.told()
    assert "Try another way" in desk.told()
    assert "The second answer." not in desk.told()
    left = {path: path.read_bytes() for path in told if path.exists()}
    assert left.items() <= told.items()
    # Where a minute ended in between, Gemini CLI has two files of the conversation, one of them empty, and clears both away.
    assert left or desk.program.agent == "gemini"
