"""Which secrets are stored already?"""

import json
import shutil
from collections.abc import Callable
from random import Random

import apsw
import pytest

from holdfast import SessionManager
from holdfast.redaction import KINDS
from tests.cli.conftest import CommandLine
from tests.redaction import corpus
from tests.redaction.test_sessions import one_of_each_kind, save_everywhere


def test_a_store_without_secrets_is_said_to_be_so(cli: CommandLine) -> None:
    with SessionManager.open(redact=True) as manager:
        save_everywhere(manager, one_of_each_kind())
    assert "no secrets" in cli.ok("redact", "--check")
    assert cli.json("redact", "--check") == {"redact": {"ok": True, "secrets": [], "damaged": []}}


def test_secrets_are_told_by_kind_and_place_and_not_shown(cli: CommandLine) -> None:
    secrets = one_of_each_kind()
    with SessionManager.open() as manager:
        session_id = save_everywhere(manager, secrets)
    before = sorted(path.name for path in (cli.project / ".agents").iterdir())
    answer = cli("redact", "--check", "--json")
    found = answer.json["redact"]
    assert (answer.code, found["ok"]) == (1, False)
    assert {one["kind"] for one in found["secrets"]} >= set(secrets)
    assert {one["kind"] for one in found["secrets"]} <= KINDS
    assert {one["session_id"] for one in found["secrets"]} == {session_id}
    places = {(one["where"], one["path"]) for one in found["secrets"]}
    assert {
        ("state", "$.conversation_history[0].content"),
        ("state", "$.raw"),
        ("state", "$.tuple[0]"),
        ("state", "$.log"),
        ("session", "$.task_description"),
        ("description", "$"),
        ("metadata", "$.x[0]"),
        ("log", "$.data.deep[0].text"),
        ("effect", "$.result.answer"),
    } <= places
    shown = answer.out + cli("redact", "--check").out
    assert [kind for kind, one in secrets.items() if one in shown] == []
    # Nothing was changed, and no key was made for a look.
    assert sorted(path.name for path in (cli.project / ".agents").iterdir()) == before


def test_names_and_keys_are_looked_at_too(cli: CommandLine) -> None:
    dice = Random(2)
    tokens = [corpus.TOKENS["github-token"][0](dice) for _ in range(4)]
    with SessionManager.open(redact=True) as manager:
        session = manager.create_session(f"deployer {tokens[0]}")
        session.save_checkpoint(f"before {tokens[1]}", state={"a": 1})
        session.step(f"deploy {tokens[2]}", lambda: 1)
        session.step("notify", lambda: 1, key=f"notify {tokens[3]}")
    answer = cli("redact", "--check", "--json")
    assert answer.code == 1
    places = {(one["where"], one["path"]) for one in answer.json["redact"]["secrets"]}
    assert {
        ("session", "$.agent_type"),
        ("agent", "$.agent_type"),
        ("checkpoint", "$.name"),
        ("effect", "$.name"),
        ("effect", "$.key"),
    } <= places
    assert [token for token in tokens if token in answer.out] == []


def test_files_are_looked_into_on_request(cli: CommandLine) -> None:
    token = corpus.TOKENS["github-token"][0](Random(1))
    (cli.project / "notes.txt").write_text(f"use {token}\n")
    (cli.project / "binary").write_bytes(b"\0" + token.encode())
    with SessionManager.open() as manager:
        manager.create_session("implementer").save_checkpoint("first")
    assert cli("redact", "--check").code == 0
    answer = cli("redact", "--check", "--files", "--json")
    assert answer.code == 1
    [one] = answer.json["redact"]["secrets"]
    assert (one["kind"], one["where"], one["path"]) == ("github-token", "file", "notes.txt")
    assert one["checkpoint"] == "first"
    assert token not in json.dumps(one)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE session_checkpoints SET description = 'x' WHERE name = 'bad'", "checkpoint"),
        ("UPDATE sessions SET created_at = 'junk' WHERE id = 'damaged'", "session"),
        ("UPDATE effects SET started_at = 'junk' WHERE session_id = 'damaged'", "effect"),
    ],
)
def test_what_is_damaged_hides_no_secret_of_the_rest(
    cli: CommandLine, statement: str, what: str
) -> None:
    token = corpus.TOKENS["github-token"][0](Random(4))
    with SessionManager.open(workspace=False) as manager:
        for name in ("first", "damaged", "last"):
            session = manager.create_session("implementer", session_id=name)
            session.save_checkpoint("bad" if name == "damaged" else "good", state={"x": token})
            session.step("deploy", lambda: "done")
    # The library's own SQLite: two copies of it in one process would undo each other's locks.
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute(statement)
    assert database.changes() == 1
    database.close()
    for _ in range(2):
        answer = cli("redact", "--check", "--json")
        assert answer.code == 5
        found = answer.json["redact"]
        assert not found["ok"]
        assert {"first", "last"} <= {one["session_id"] for one in found["secrets"]}
        [damage] = found["damaged"]
        assert (damage["checkpoint_id"] is not None) == (what == "checkpoint")
        assert damage["session_id"] == "damaged"
        shown = cli("redact", "--check")
        assert shown.code == 5
        named = {
            "checkpoint": damage["checkpoint_id"],
            "session": "session damaged",
            "effect": f"effect {damage['effect_key']} of session damaged",
        }
        assert f"not looked at  {named[what]}: " in shown.out
        # The second time round a checkpoint is in quarantine.
        assert cli("verify", "--deep").code == 5


def test_files_that_are_gone_are_told_of(cli: CommandLine) -> None:
    with SessionManager.open() as manager:
        manager.create_session("implementer").save_checkpoint("first")
    shutil.rmtree(cli.project / ".agents" / "workspace.git")
    assert cli("redact", "--check").code == 0
    answer = cli("redact", "--check", "--files", "--json")
    assert answer.code == 5
    assert answer.json["redact"]["damaged"][0]["reason"].startswith("its files: ")


def test_check_has_to_be_said(cli: CommandLine) -> None:
    assert cli("redact").code == 2


def test_one_bad_row_hides_only_itself_and_shows_no_secret(cli: CommandLine) -> None:
    dice = Random(5)
    tokens = [corpus.TOKENS["github-token"][0](dice) for _ in range(12)]
    with SessionManager.open() as manager:
        agent = manager.create_agent("worker", agent_type=f"x {tokens[0]}")
        session = manager.create_session("x", agent_id=agent.id, session_id="s")
        for number in (1, 2):
            session.save_checkpoint(f"c{number}", state={"t": tokens[number]})
        session.save_checkpoint(f"c3 {tokens[3]}", state={"t": 1})
        session.log("info", f"first {tokens[4]}")
        session.log("info", f"second {tokens[5]}")
        session.step("one", lambda: tokens[6])
        session.step("two", lambda: 1, key=f"key {tokens[7]}")
    whole = cli("redact", "--check", "--json").json["redact"]["secrets"]
    for table, where, hidden in (
        ("session_logs", "message LIKE 'first%'", ("log", "$.message")),
        ("session_checkpoints", "name LIKE 'c3%'", ("checkpoint", "$.name")),
        ("effects", "name = 'two'", ("effect", "$.key")),
        ("agents", "name = 'worker'", ("agent", "$.agent_type")),
        ("sessions", "id = 's'", None),
    ):
        undo = _spoil(cli, table, where, "started_at" if table == "effects" else "created_at")
        answer = cli("redact", "--check", "--json")
        found = answer.json["redact"]
        assert answer.code == 5
        [damage] = found["damaged"]
        assert damage["session_id"] == "s"
        expected = sorted((one["where"], one["path"]) for one in whole)
        if hidden is not None:
            expected.remove(hidden)
        elif table == "sessions":
            # Nobody knows whose session it is.
            expected.remove(("agent", "$.agent_type"))
        assert sorted((one["where"], one["path"]) for one in found["secrets"]) == expected
        text = cli("redact", "--check")
        shown = answer.out + answer.err + text.out + text.err
        assert [token for token in tokens if token in shown] == []
        undo()


def _spoil(cli: CommandLine, table: str, where: str, column: str) -> Callable[[], None]:
    """Let a row have a time that is none; return what takes that back."""

    def run(value: str) -> str:
        # The library's own SQLite: two copies of it in one process would undo each other's locks.
        database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
        [(before,)] = database.execute(f"SELECT {column} FROM {table} WHERE {where}")
        database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
        database.close()
        return str(before)

    before = run("when")

    def undo() -> None:
        run(before)

    return undo
