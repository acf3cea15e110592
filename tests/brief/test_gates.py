"""Gates: additive, blocking where something must hold, warning where it should."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Session, SessionManager
from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.errors import GateUnmet, InvalidConfiguration, InvalidFilter
from holdfast.gates import CHECKS, GateReport, check_gate, gated
from holdfast.handoff import export_session_log, update_handoff
from tests.brief.conftest import git

ROOT = Path(__file__).parents[2]


def configure(project: Path, **gates: dict[str, list[str]]) -> None:
    lines = []
    for gate, items in gates.items():
        lines.append(f"[gates.{gate}]")
        lines += [f"{level} = {json.dumps(names)}" for level, names in items.items()]
    (project / ".agents").mkdir(exist_ok=True)
    (project / ".agents" / "holdfast.toml").write_text("\n".join(lines))


@pytest.fixture
def ask(project: Path) -> Callable[..., GateReport]:
    def asked(gate: str, **options: Any) -> GateReport:
        return check_gate(
            gate,
            lambda: SessionManager.open(project_dir=project, create=False),
            project_dir=str(project),
            **options,
        )

    return asked


def met(report: GateReport) -> dict[str, bool]:
    return {item.name: item.met for item in report.items}


@pytest.mark.row("S1-34")
def test_without_settings_a_gate_does_nothing(
    saved: Session, project: Path, ask: Callable[..., GateReport]
) -> None:
    saved.close()
    before = len(saved.list_checkpoints()), saved.logs()
    for gate in ("start", "end"):
        report = ask(gate)
        assert (report.configured, report.items, report.ok) == (False, (), True)
    assert (len(saved.list_checkpoints()), saved.logs()) == before
    # One gate does not bring the other.
    configure(project, end={"must": ["checkpoint"]})
    assert ask("start").configured is False


@pytest.mark.row("S1-34")
def test_a_project_without_a_database_has_no_gates_either(
    project: Path, ask: Callable[..., GateReport]
) -> None:
    assert ask("start").ok
    assert not (project / ".agents").exists()


@pytest.mark.row("S1-33")
def test_what_must_hold_closes_the_gate_and_what_should_hold_warns(
    saved: Session, project: Path, ask: Callable[..., GateReport]
) -> None:
    saved.close()
    configure(project, start={"must": ["session", "safe"], "should": ["clean", "decisions"]})
    (project / "b.py").write_text("changed\n")
    report = ask("start", save=False)
    assert met(report) == {"session": True, "safe": True, "clean": False, "decisions": False}
    assert report.ok
    assert [item.name for item in report.warnings] == ["clean", "decisions"]
    configure(project, start={"must": ["session", "clean"]})
    report = ask("start")
    assert not report.ok
    assert [item.name for item in report.unmet] == ["clean"]
    assert "file_changed" in report.unmet[0].evidence
    assert report.checkpoint is None


@pytest.mark.row("S1-33")
@pytest.mark.parametrize("gate", ["start", "end"])
def test_without_a_database_nothing_that_must_hold_does(
    project: Path, ask: Callable[..., GateReport], gate: str
) -> None:
    configure(project, **{gate: {"must": ["database", "session"], "should": ["clean"]}})
    report = ask(gate)
    assert met(report) == {"database": False, "session": False, "clean": False}
    assert not report.ok
    SessionManager.open(project_dir=project).close()
    assert met(ask(gate)) == {"database": True, "session": False, "clean": False}


@pytest.mark.row("S1-42")
def test_the_end_gate_asks_for_a_checkpoint_after_the_start_with_the_files_as_they_are(
    saved: Session, manager: SessionManager, project: Path, ask: Callable[..., GateReport]
) -> None:
    saved.close()
    configure(project, start={"must": ["session"]}, end={"must": ["checkpoint"]})
    started = ask("start")
    assert started.checkpoint is not None
    assert started.checkpoint.retention_class == "session"
    assert saved.latest_checkpoint().state == saved.get_checkpoint("before-refactor").state
    assert saved.latest_checkpoint().id == started.checkpoint.id
    assert "since the start gate" in ask("end").unmet[0].evidence
    with manager.resume_session(saved.id) as session:
        session.save_checkpoint("final", state={})
        (project / "b.py").write_text("too late\n")
        assert "file_changed" in ask("end").unmet[0].evidence
        session.save_checkpoint("final-2", state={})
        report = ask("end")
    assert report.ok
    assert report.items[0].evidence.startswith("final-2 (")
    # The next piece of work has its own start.
    assert ask("start").ok
    assert not ask("end").ok


@pytest.mark.parametrize(
    "data",
    [
        {"gate": "B12"},
        {"gate": "start", "seq": 10**6},
        {"decision": "no"},
        {"decision": {"text": "no"}},
        {"session_log": "mine"},
    ],
    ids=str,
)
def test_a_programs_own_log_lines_open_and_close_no_gate(
    saved: Session,
    manager: SessionManager,
    project: Path,
    ask: Callable[..., GateReport],
    data: dict[str, Any],
) -> None:
    saved.close()
    asked = ["checkpoint", "decisions", "session_log"]
    configure(project, start={"must": ["session"]}, end={"must": asked})
    assert ask("start").ok
    with manager.resume_session(saved.id) as session:
        session.log("info", "boarding", data=data)
        assert met(ask("end")) == dict.fromkeys(asked, False)
        session.decision("Keep SQLite")
        session.save_checkpoint("final", state={})
        export_session_log(manager, session)
        session.log("info", "boarding", data=data)
        assert met(ask("end")) == dict.fromkeys(asked, True)


@pytest.mark.row("S1-42")
def test_a_program_works_between_the_gates_with_autosave(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    configure(project, start={"must": ["session", "safe"]}, end={"must": ["checkpoint"]})
    state = {"step": 0}
    with gated(manager, saved, lambda: dict(state), interval=None) as saver:
        assert saver.is_running
        (first,) = saved.list_checkpoints(retention_class="session")
        (project / "b.py").write_text("changed\n")
        state["step"] = 1
    assert not saver.is_running
    latest = saved.latest_checkpoint()
    assert (latest.seq > first.seq, latest.state) == (True, {"step": 1})
    # Nothing that changed: a final checkpoint is there all the same.
    with gated(manager, saved, lambda: dict(state), interval=None):
        started = saved.latest_checkpoint().seq
    assert saved.latest_checkpoint().seq > started


@pytest.mark.row("S1-42")
def test_a_closed_gate_stops_a_program_before_and_after(
    saved: Session, manager: SessionManager, project: Path
) -> None:
    configure(project, start={"must": ["committed"]})
    (project / "b.py").write_text("changed\n")
    with (
        pytest.raises(GateUnmet, match="start gate is closed: committed"),
        gated(manager, saved, dict),
    ):
        pytest.fail("the block must not run")
    configure(project, end={"must": ["decisions"]})
    with (
        pytest.raises(GateUnmet, match="end gate is closed: decisions"),
        gated(manager, saved, lambda: {"step": 9}),
    ):
        pass
    assert saved.latest_checkpoint().state == {"step": 9}


@pytest.mark.row("S1-34")
def test_without_settings_a_program_just_saves_itself(
    saved: Session, manager: SessionManager
) -> None:
    with gated(manager, saved, lambda: {"step": 1}, interval=None):
        pass
    assert saved.latest_checkpoint().state == {"step": 1}
    assert saved.list_checkpoints(retention_class="session") == []
    with pytest.raises(ZeroDivisionError), gated(manager, saved, lambda: {"step": 2}):
        _ = 1 // 0
    assert saved.latest_checkpoint().state == {"step": 2}


def test_each_thing_that_can_be_asked_for_is_answered(
    saved: Session, manager: SessionManager, project: Path, ask: Callable[..., GateReport]
) -> None:
    configure(project, end={"should": list(CHECKS)})
    expected = dict.fromkeys(CHECKS, True)
    report = ask("end")
    assert met(report) == expected | {
        # This process holds the session, and asks through another manager of the same process.
        "decisions": False,
        "tasks": False,
        "handoff": False,
        "session_log": False,
    }
    saved.decision("Keep SQLite")
    saved.save_checkpoint("final", state={})
    update_handoff(manager, write=True)
    export_session_log(manager, saved)
    assert met(ask("end")) == expected
    (project / "b.py").write_text("changed\n")
    git("rm", "-q", "--cached", "b.py")
    entry = Entry("2026-01-01T00:00:00+00:00", "autosave failed: gone", saved.id,
                  manager.store.url, manager.store.tenant, "interval", "x", 10_000)  # fmt: skip
    FallbackLog(project).append(entry)
    assert met(ask("end")) == expected | {"clean": False, "checkpoint": False, "committed": False,
                                          "saves": False}  # fmt: skip


def test_the_handoff_may_be_written_after_the_final_checkpoint(
    saved: Session, manager: SessionManager, project: Path, ask: Callable[..., GateReport]
) -> None:
    (project / "HANDOFF.md").write_text("# Mine\n")
    saved.save_checkpoint("final", state={})
    configure(project, end={"must": ["checkpoint", "handoff"]})
    assert met(ask("end")) == {"checkpoint": True, "handoff": False}
    update_handoff(manager, write=True)
    assert met(ask("end")) == {"checkpoint": True, "handoff": True}
    (project / "b.py").write_text("changed\n")
    assert met(ask("end")) == {"checkpoint": False, "handoff": True}


def test_the_handoff_need_not_list_what_it_never_lists(
    saved: Session, manager: SessionManager, project: Path, ask: Callable[..., GateReport]
) -> None:
    configure(project, end={"must": ["checkpoint", "handoff"]})
    update_handoff(manager, write=True)
    with gated(manager, saved, lambda: {"step": 1}, interval=None):
        pass
    assert saved.latest_checkpoint().retention_class == "automatic"
    saved.save_checkpoint("final", state={})
    assert met(ask("end")) == {"checkpoint": True, "handoff": False}
    automatic = manager.create_session("implementer")
    automatic.save_checkpoint(state={}, retention_class="automatic")
    report = ask("end", session_id=automatic.id)
    assert report.unmet[0].evidence == "nothing was saved that a handoff lists; run: holdfast save"


def test_a_session_in_use_is_not_disturbed_by_the_start_gate(
    saved: Session, project: Path, ask: Callable[..., GateReport], other: Callable[[], Any]
) -> None:
    configure(project, start={"must": ["session"]})
    report = check_gate("start", other, project_dir=str(project))
    assert (report.ok, report.checkpoint) == (True, None)
    assert report.warnings[0].name == "free"
    saved.save_checkpoint(state={})


def test_what_nobody_knows_cannot_be_asked_for(
    project: Path, ask: Callable[..., GateReport]
) -> None:
    configure(project, start={"must": ["magic"]})
    with pytest.raises(InvalidConfiguration, match="known are database, session"):
        ask("start")
    with pytest.raises(InvalidFilter):
        ask("middle")


def test_everything_that_can_be_asked_for_is_documented() -> None:
    text = (ROOT / "docs/how-to/protocol.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in CHECKS)
