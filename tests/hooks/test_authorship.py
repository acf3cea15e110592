"""Whose a file is that a shell command wrote, where several are at work in one project."""

from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.hooks import authorship
from tests.hooks.conftest import Agent, checkpoints
from tests.hooks.test_rewind import run


class Worker(Agent):
    """An agent whose shell commands take their time."""

    def begin(self) -> None:
        self("PreToolUse", tool_name=self._shell, tool_input={"command": "make"})

    def finish(self) -> None:
        self("PostToolUse", tool_name=self._shell, tool_input={"command": "make"})

    def writes(self, *names: str) -> None:
        """Have the command that is under way write files."""
        for name in names:
            with (self.project / name).open("a") as file:
                file.write(f"by {self.session_id}\n")

    def told_edit(self, name: str) -> None:
        """Change a file with a tool that names it."""
        given = {"tool_name": "edit", "tool_input": {"filePath": str(self.project / name)}}
        self("PreToolUse", **given)
        self.writes(name)
        self("PostToolUse", **given)

    def own(self, manager: SessionManager) -> set[str]:
        """Return the files that checkpoints have as this agent's."""
        found: set[str] = set()
        for one in checkpoints(manager, self.session(manager)):
            found.update((one.metadata or {}).get("hook", {}).get("files", ()))
        return found

    def session(self, manager: SessionManager) -> str:
        key = f"{self.kind}:{self.session_id}"
        return manager.list_sessions(metadata={"agent_session": key})[0].id

    def roll_back(self, manager: SessionManager) -> None:
        """Go back to the beginning, as far as it is this agent's own work."""
        session = self.session(manager)
        first = checkpoints(manager, session)[0].id
        run(self.project, "rollback", first, "--session", session, "--only-mine", "--yes")

    @property
    def _shell(self) -> str:
        return "bash" if self.kind == "opencode" else "Bash"


@pytest.fixture
def a(project: Path) -> Worker:
    for name in ("a.txt", "b.txt"):
        (project / name).write_text("before\n")
    agent = Worker(project, "A", kind="codex")
    agent.start()
    return agent


@pytest.fixture
def b(project: Path, a: Worker) -> Worker:
    # Of this kind of agent one process may have several sessions.
    agent = Worker(project, "B", kind="opencode")
    agent.start()
    return agent


def test_what_a_command_wrote_is_its_agents_whoever_saved_meanwhile(
    project: Path, manager: SessionManager, a: Worker, b: Worker
) -> None:
    a.begin()
    a.writes("a.txt", "made.txt")
    a.finish()
    b.told_edit("b.txt")
    b("Stop")
    a("Stop")
    assert (a.own(manager), b.own(manager)) == ({"a.txt", "made.txt"}, {"b.txt"})

    a.roll_back(manager)
    assert (project / "a.txt").read_text() == "before\n"
    assert not (project / "made.txt").exists()
    assert (project / "b.txt").read_text() == "before\nby B\n"


@pytest.mark.row("T17")
@pytest.mark.parametrize("order", ["AB", "BA"])
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved yet"])
def test_what_one_of_two_commands_wrote_is_nobodys(
    project: Path, manager: SessionManager, a: Worker, b: Worker, order: str, saved: bool
) -> None:
    a.begin()
    a.writes("a.txt")
    b.begin()
    a.writes("a.txt", "made.txt")
    a.finish()
    for one in order if saved else ():
        {"A": a, "B": b}[one]("Stop")
    if saved:
        assert "made.txt" not in a.own(manager) | b.own(manager)

    for one in order:
        {"A": a, "B": b}[one].roll_back(manager)
        assert (project / "a.txt").read_text() == "before\nby A\nby A\n"
        assert (project / "made.txt").read_text() == "by A\n"


def test_what_was_there_before_the_other_command_began_is_not_in_doubt(
    manager: SessionManager, a: Worker, b: Worker
) -> None:
    a.begin()
    a.writes("a.txt")
    b.begin()
    b.writes("b.txt")
    a("Stop")
    b("Stop")
    assert (a.own(manager), b.own(manager)) == ({"a.txt"}, set())


@pytest.mark.parametrize("most", [authorship._MOST_TOLD, 0], ids=["each named", "too many"])
def test_what_another_stored_during_a_command_stays_the_others_when_its_checkpoint_is_gone(
    manager: SessionManager, a: Worker, b: Worker, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorship, "_MOST_TOLD", most)
    a.begin()
    b.told_edit("b.txt")
    b("Stop")
    stored = checkpoints(manager, b.session(manager))[-1]
    manager.store.delete_checkpoints([stored.id])
    a.finish()
    a("Stop")
    assert a.own(manager) == set()


def test_a_command_whose_agent_was_away_does_not_get_what_others_did_since(
    manager: SessionManager, a: Worker, b: Worker
) -> None:
    a.begin()
    a.writes("a.txt")
    manager.interrupt_session(a.session(manager), message="killed")
    b.begin()
    b.writes("b.txt")
    b("Stop")
    a.start("resume")
    assert (a.own(manager), b.own(manager)) == (set(), {"b.txt"})


def test_what_a_program_without_hooks_has_saved_is_not_the_agents(
    project: Path, manager: SessionManager, a: Worker
) -> None:
    library = manager.create_session("library")
    a.begin()
    (project / "b.txt").write_text("by the library\n")
    library.save_checkpoint(state={})
    a.writes("a.txt")
    a.finish()
    a("Stop")
    assert a.own(manager) == {"a.txt"}


def test_what_the_wrapper_around_an_agent_saves_stays_the_agents(
    project: Path, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = manager.create_session("codex")
    monkeypatch.setenv("HOLDFAST_SESSION", wrapper.id)
    agent = Worker(project, "A", kind="codex")
    agent.start()
    agent.begin()
    agent.writes("made.txt")
    wrapper.save_checkpoint(state={})
    agent.finish()
    agent("Stop")
    assert agent.own(manager) == {"made.txt"}


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved yet"])
def test_what_another_told_of_through_a_link_to_the_project_stays_the_others(
    project: Path, tmp_path: Path, manager: SessionManager, a: Worker, saved: bool
) -> None:
    (tmp_path / "link").symlink_to(project)
    b = Worker(tmp_path / "link", "B", kind="opencode")
    b.start()
    a.begin()
    b.told_edit("b.txt")
    a.writes("a.txt")
    a.finish()
    if saved:
        a("Stop")
    a.roll_back(manager)
    assert (project / "a.txt").read_text() == "before\n"
    assert (project / "b.txt").read_text() == "before\nby B\n"


def test_what_an_agent_left_that_is_gone_takes_nothing_from_its_successor(
    project: Path, manager: SessionManager, a: Worker, b: Worker
) -> None:
    b.begin()
    b.told_edit("a.txt")
    # It is killed, and the next one is started.
    manager.interrupt_session(b.session(manager), message="killed")
    c = Worker(project, "C", kind="codex")
    c.start()
    c.begin()
    c.writes("a.txt")
    c.finish()
    c("Stop")
    assert c.own(manager) == {"a.txt"}


def test_an_agent_that_lives_is_not_gone_because_its_session_was_given_up(
    manager: SessionManager, a: Worker, b: Worker
) -> None:
    a.begin()
    b.told_edit("b.txt")
    # As it happens when a command takes longer than the lease lasts.
    manager.interrupt_session(b.session(manager), message="nothing was heard of it")
    a.writes("a.txt")
    a.finish()
    a("Stop")
    assert a.own(manager) == {"a.txt"}
