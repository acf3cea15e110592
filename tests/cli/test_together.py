"""What other faces and other stores hold can be seen from the command line."""

import asyncio
import json
import re
from typing import TypedDict, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from holdfast import (
    CheckpointableMixin,
    SessionManager,
    SQLiteCheckpointer,
    SQLiteCheckpointSaver,
)
from holdfast.errors import ForeignSession
from holdfast.integrations.langgraph import HoldfastSaver
from tests.cli.conftest import CommandLine


class Notes(TypedDict):
    """The state of a graph."""

    notes: list[str]


class Planner(CheckpointableMixin):
    """An agent as users write them."""


@pytest.mark.row("S2-20")
def test_mixin_saver_session_manager_and_command_line_share_one_database(cli: CommandLine) -> None:
    cli.ok("init")
    database = cli.project / ".agents" / "sessions.db"
    with SQLiteCheckpointSaver(str(database)) as saver:
        planner = Planner()
        planner.init_checkpointing(saver, "job-0007")
        planner.save_checkpoint("plan", {"todo": ["a", "b"]})
        planner.save_checkpoint("act", {"todo": ["b"]})

    # The command line sees the thread as a session and its puts as checkpoints …
    assert [one["id"] for one in cli.json("sessions")["sessions"]] == ["job-0007"]
    first, second = reversed(cli.json("log", "job-0007")["checkpoints"])
    changes = cli.json("diff", "-s", "job-0007", first["id"], second["id"])["diff"]["changes"]
    assert [change["kind"] for change in changes] == ["removed"]
    assert cli.json("show", "-s", "job-0007")["checkpoint"]["state"]["todo"] == ["b"]

    # … the session manager resumes it, the command line saves into it …
    with SessionManager.open(project_dir=cli.project) as manager:
        session = manager.resume_session("job-0007")
        assert session.state["todo"] == ["b"]
        session.save_checkpoint("by-hand", state={"todo": []})
    saved = cli.save("from-the-shell", {"todo": ["c"]}, "--session", "job-0007")
    assert saved["session_id"] == "job-0007"

    # … and an agent with the mixin goes on from there.
    with SQLiteCheckpointSaver(str(database)) as saver:
        planner = Planner()
        planner.init_checkpointing(saver, "job-0007")
        assert planner.restore_checkpoint() == {"todo": ["c"]}
        planner.save_checkpoint("act", {"todo": []})
    assert len(cli.json("log", "job-0007")["checkpoints"]) == 5
    report = cli.json("verify")["verify"]
    assert (report["ok"], report["checked"], report["damaged"]) == (True, 5, [])


def test_a_graphs_thread_is_its_graphs_alone(cli: CommandLine) -> None:
    cli.save("mine", {"step": 1}, "--agent-type", "me", "--session", "mine")
    graph = StateGraph(Notes)
    graph.add_node("note", lambda notes: {"notes": [*notes["notes"], "noted"]})
    graph.add_edge(START, "note")
    graph.add_edge("note", END)
    config: RunnableConfig = {"configurable": {"thread_id": "customer-7"}}
    with HoldfastSaver(cli.project / ".agents" / "sessions.db") as saver:
        compiled = graph.compile(checkpointer=saver)
        compiled.invoke({"notes": []}, config)

        # What names no session means another one, although the thread is the newest …
        assert cli.json("save", "again")["checkpoint"]["session_id"] == "mine"
        # … and what names it is refused.
        named = ("--session", "customer-7")
        before = cli.json("log", "customer-7")["checkpoints"]
        for refused in (
            ("save", "aside", *named),
            ("rollback", before[-1]["id"], "--yes", *named),
            ("rollback", before[-1]["id"], "--dry-run", *named),
            ("pause", "customer-7"),
        ):
            answer = cli(*refused, "--json")
            assert (answer.code, answer.error["code"]) == (4, "foreign_session")
        with SessionManager.open(project_dir=cli.project) as manager:
            with pytest.raises(ForeignSession, match="a thread of a langgraph"):
                manager.resume_session("customer-7").save_checkpoint(state={})
            with pytest.raises(ForeignSession):
                manager.resume_session("customer-7").guard("aside").__enter__()
        after = cli.json("log", "customer-7")["checkpoints"]
        assert [one["id"] for one in after] == [one["id"] for one in before]

        found = cast("Notes", compiled.get_state(config).values)
        assert compiled.invoke(found, config) == {"notes": ["noted", "noted"]}


def test_a_checkpointers_thread_is_not_saved_into_from_outside(cli: CommandLine) -> None:
    cli.ok("init")

    async def put() -> None:
        async with SQLiteCheckpointer(cli.project / ".agents" / "sessions.db") as checkpointer:
            await checkpointer.put("t42", {"step": 1})

    asyncio.run(put())
    assert cli("save", "aside", "--json").error["code"] == "nothing_to_resume"
    assert cli("save", "aside", "--session", "t42", "--json").error["code"] == "foreign_session"
    assert cli.json("log", "t42")["checkpoints"] == []


def test_commands_work_on_postgresql(cli: CommandLine, postgres_url: str) -> None:
    store = ("--url", postgres_url)
    assert cli("log", *store, "--json").error["code"] == "schema_missing"
    report = cli.json("init", *store)["project"]
    assert report["database"] == "prepared"
    assert cli.json("init", *store)["project"]["database"] == "present"
    assert not (cli.project / ".agents").exists()
    cli.save("first", {"step": 1}, *store)
    cli.save("second", {"step": 2}, *store)
    assert [one["name"] for one in cli.json("log", *store)["checkpoints"]] == ["second", "first"]
    assert cli.json("show", "first", *store)["checkpoint"]["state"] == {"step": 1}
    assert cli.json("verify", *store)["verify"]["ok"] is True
    assert cli.json("gc", *store)["gc"]["chunks"] == 0
    assert cli.json("prune", "--dry-run", *store)["prune"]["removed"] == 0


def test_the_demonstration_runs_on_postgresql(cli: CommandLine, postgres_url: str) -> None:
    report = cli.json("demo", "--url", postgres_url)["demo"]
    assert report["ok"] is True
    assert report["file_bytes"] is None


def test_a_server_that_is_not_there_is_one_line_without_the_password(cli: CommandLine) -> None:
    answer = cli("log", "--url", "postgresql://me:s3cret@127.0.0.1:1/x?connect_timeout=2", "--json")
    assert answer.code == 6
    assert json.loads(answer.err)["error"]["code"] == "store_unavailable"
    assert "s3cret" not in answer.err


@pytest.mark.row("S4-10")
def test_every_command_takes_a_label_and_two_of_one_second_differ(cli: CommandLine) -> None:
    labels: list[str] = []
    # Saves are quick, so two of them fall into one second sooner or later.
    while not any(label.endswith("-2") for label in labels):
        saved = cli.save(f"number {len(labels)}", {"step": len(labels)})
        labels.append(saved["label"])
    assert all(re.fullmatch(r"checkpoint-\d{8}-\d{6}(-\d+)?", label) for label in labels)
    assert len(set(labels)) == len(labels)
    second = labels[-1]
    first = second.removesuffix("-2")
    assert labels[-2] == first
    for step, label in ((len(labels) - 1, second), (len(labels) - 2, first)):
        assert cli.json("show", label)["checkpoint"]["state"] == {"step": step}
    diff = cli.json("diff", first, second)["diff"]
    assert (diff["before"]["label"], diff["after"]["label"]) == (first, second)
