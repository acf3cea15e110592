import shutil
from pathlib import Path

import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine, run_process
from tests.workspace.pictures import git, picture

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
    assert lines[-1] == "5 changes in the state, 0 files"
    assert "a" * 500 in cli.ok("diff", "one", "two", "--full")


def test_equal_checkpoints_differ_in_nothing(cli: CommandLine) -> None:
    cli.save("one", BEFORE)
    cli.save("two", BEFORE)
    diff = cli.json("diff", "one", "two")["diff"]
    assert (diff["changes"], diff["files"], diff["notes"]) == ([], [], [])
    assert cli.ok("diff", "one", "two").endswith("0 changes in the state, 0 files\n")


def test_one_is_compared_with_the_present_and_none_is_the_latest(cli: CommandLine) -> None:
    Path("a").write_text("1\n")
    cli.save("one", BEFORE)
    Path("a").write_text("2\n")
    cli.save("two", AFTER)
    Path("b").write_text("new\n")
    since_one = cli.json("diff", "one")["diff"]
    assert since_one["after"] is None
    assert [one["path"] for one in since_one["files"]] == ["a", "b"]
    assert len(since_one["changes"]) == 5
    since_two = cli.json("diff")["diff"]
    assert since_two["before"]["name"] == "two"
    assert since_two["changes"] == []
    (only,) = since_two["files"]
    assert (only["kind"], only["path"], only["added"], only["removed"]) == ("added", "b", 1, 0)
    # Looking stores no checkpoint.
    assert len(cli.json("log")["checkpoints"]) == 2


def test_files_come_as_a_patch_that_git_applies(cli: CommandLine, tmp_path: Path) -> None:
    Path("text").write_bytes(b"one\ntwo\xff\r\n\tthree")
    Path("gone").write_text("gone\n")
    Path("mode").write_text("same\n")
    cli.save("one", {})
    shutil.copytree(cli.project, tmp_path / "before", ignore=shutil.ignore_patterns(".agents"))
    Path("text").write_bytes(b"one\nTWO\xfe\x1b[31m\r\n\tthree")
    Path("gone").unlink()
    Path("mode").chmod(0o755)
    Path("new").write_text("new\n")
    patch = run_process("diff", "one", "--files", cwd=cli.project).stdout
    git(tmp_path / "before", "apply", "-", stdin=patch)
    assert picture(tmp_path / "before") == picture(cli.project)


def test_names_and_counts_of_files(cli: CommandLine) -> None:
    Path("same").write_text("same\n")
    Path("binary").write_bytes(b"\0\1")
    Path("text").write_text("".join(f"{n}\n" for n in range(100)))
    cli.save("one", {"step": 1})
    Path("binary").write_bytes(b"\0\2")
    Path("text").write_text("".join(f"{n}\n" for n in range(50, 100)))
    Path("new").write_text("new\n")
    assert cli.ok("diff", "--name-only").splitlines()[2:-1] == ["~ binary", "+ new", "~ text"]
    # Of the state nothing is said then, although it differs.
    cli.save("two", {"step": 2}, "--no-files")
    assert cli.ok("diff", "one", "--name-only").splitlines()[2:] == [
        "~ binary", "+ new", "~ text", "3 files"
    ]  # fmt: skip
    assert cli.json("diff", "one", "--stat")["diff"]["changes"] is None
    stat = cli.ok("diff", "one", "--stat").splitlines()
    assert [line.split("|")[0].strip() for line in stat[2:-1]] == ["binary", "new", "text"]
    assert stat[2].endswith("binary")
    assert stat[3].endswith("|    1 +")
    assert stat[4].endswith("   50 " + "-" * 40)
    assert "text" not in cli.json("diff", "one", "--name-only")["diff"]["files"][0]


def test_a_part_of_it(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("src").mkdir()
    Path("src/a").write_text("1\n")
    Path("b").write_text("1\n")
    cli.save("one", {"step": 1})
    for path in ("src/a", "b"):
        Path(path).write_text("2\n")
    assert "files" not in cli.ok("diff", "--state")
    assert cli.json("diff", "--state")["diff"]["files"] is None
    assert cli.json("diff", "--files")["diff"]["changes"] is None
    assert cli.ok("diff", "--files").startswith("diff --git a/b b/b\n")
    monkeypatch.chdir("src")
    for option in ("a", ".", "../src/a", str(cli.project / "src")):
        found = cli.json("diff", "--path", option)["diff"]
        assert ([one["path"] for one in found["files"]], found["changes"]) == (["src/a"], None)


@pytest.mark.parametrize(
    "options",
    [
        ("--state", "--files"), ("--state", "--stat"), ("--state", "--path", "x"),
        ("--state", "--name-only"), ("--stat", "--name-only"), ("a", "b", "c"),
        ("--path", "/somewhere/else"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(cli: CommandLine, options: tuple[str, ...]) -> None:
    cli.save("one", {})
    answer = cli("diff", *options)
    assert (answer.code, answer.out) == (2, "")


def test_what_was_saved_without_files_says_so(cli: CommandLine) -> None:
    cli.save("one", {"step": 1}, "--no-files")
    found = cli("diff", "one")
    assert found.code == 0
    assert "files were not compared: checkpoint 'one' was saved without files" in found.err
    assert cli.json("diff", "one")["diff"]["files"] is None
    assert cli("diff", "one", "--files").code == 3
    cli.save("two", {"step": 2}, "--no-files")
    assert cli("diff", "one", "two").err == ""


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
    assert cli("diff", "three", "one").code == 3


def test_checkpoints_of_two_sessions_are_compared_by_id(
    cli: CommandLine, manager: SessionManager
) -> None:
    one = manager.create_session("a").save_checkpoint("x", state={"n": 1})
    two = manager.create_session("b").save_checkpoint("y", state={"n": 2})
    (change,) = cli.json("diff", one.id, two.id)["diff"]["changes"]
    assert (change["path"], change["before"], change["after"]) == ("$.n", 1, 2)
    assert cli.json("show", one.id)["checkpoint"]["state"] == {"n": 1}
