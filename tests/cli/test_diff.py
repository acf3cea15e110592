from holdfast import SessionManager
from tests.cli.conftest import CommandLine

BEFORE = {"step": 1, "gone": True, "list": [1, 2, 3], "text": "a" * 500}
AFTER = {"step": 2, "list": [1, 9, 2, 3], "text": "a" * 500 + "b", "new": None}


def test_changes_are_given_with_their_paths(cli: CommandLine) -> None:
    cli.save("one", BEFORE)
    cli.save("two", AFTER)
    diff = cli.json("diff", "one", "two")["diff"]
    assert (diff["before"]["name"], diff["after"]["name"]) == ("one", "two")
    changes = {change["path"]: change for change in diff["changes"]}
    assert changes["$.step"] == {"kind": "changed", "path": "$.step", "before": 1, "after": 2}
    assert changes["$.gone"] == {"kind": "removed", "path": "$.gone", "before": True}
    assert changes["$.new"] == {"kind": "added", "path": "$.new", "after": None}
    assert changes["$.list[1]"] == {"kind": "added", "path": "$.list[1]", "after": 9}


def test_people_see_signs_and_long_values_are_shortened(cli: CommandLine) -> None:
    cli.save("one", BEFORE)
    cli.save("two", AFTER)
    lines = cli.ok("diff", "one", "two").splitlines()
    assert lines[0].startswith("--- one")
    assert lines[1].startswith("+++ two")
    assert {"- $.gone: true", "+ $.new: null", "+ $.list[1]: 9", "~ $.step: 1 → 2"} <= set(lines)
    (text,) = [line for line in lines if line.startswith("~ $.text")]
    assert len(text) < 200
    assert "…" in text
    assert lines[-1] == "5 changes"
    assert "a" * 500 in cli.ok("diff", "one", "two", "--full")


def test_the_second_is_the_latest_by_default_and_equal_states_differ_in_nothing(
    cli: CommandLine,
) -> None:
    cli.save("one", BEFORE)
    cli.save("two", BEFORE)
    assert cli.json("diff", "one")["diff"]["changes"] == []
    assert cli.ok("diff", "one").endswith("0 changes\n")


def test_values_that_json_lacks_can_differ(cli: CommandLine, manager: SessionManager) -> None:
    session = manager.create_session("x")
    session.save_checkpoint("one", state={"v": (1,)})
    session.save_checkpoint("two", state={"v": [1]})
    assert cli.json("diff", "one", "two")["diff"]["changes"][0]["before"] == {
        "$t": "tuple",
        "v": [1],
    }


def test_an_unknown_checkpoint_is_not_found(cli: CommandLine) -> None:
    cli.save("one", BEFORE)
    assert cli("diff", "one", "three").code == 3
    assert cli("diff").code == 2


def test_checkpoints_of_two_sessions_are_compared_by_id(
    cli: CommandLine, manager: SessionManager
) -> None:
    one = manager.create_session("a").save_checkpoint("x", state={"n": 1})
    two = manager.create_session("b").save_checkpoint("y", state={"n": 2})
    (change,) = cli.json("diff", one.id, two.id)["diff"]["changes"]
    assert (change["path"], change["before"], change["after"]) == ("$.n", 1, 2)
    assert cli.json("show", one.id)["checkpoint"]["state"] == {"n": 1}
