"""Bad input and damaged rows: a typed error that says where, nothing executed, nothing lost."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import (
    InputError,
    IntegrityError,
    InvalidFilter,
    InvalidIdentifier,
    StateNotSerializable,
)
from holdfast.integrations.langgraph import HoldfastSaver
from tests.integrations.langgraph.graphs import at, checkpoint, id_of

BAD_IDS: list[Any] = [
    {"$gt": ""},
    "x" * 1_000_000,
    "nul\0",
    "\ud800",
    "",
    None,
    ["t"],
    1.5,
    b"t",
    True,
    10**5000,
]
NAMES = [
    *("dict", "megabyte", "nul", "surrogate", "empty", "none", "list", "float", "bytes", "bool"),
    "endless number",
]


@pytest.mark.parametrize("bad", BAD_IDS, ids=NAMES)
def test_a_bad_thread_id_is_refused_by_every_method(saver: HoldfastSaver, bad: Any) -> None:
    saver.put(at("good"), checkpoint({"a": 1}), {}, {})
    config = at(bad)
    calls: list[Any] = [
        lambda: saver.get_tuple(config),
        lambda: list(saver.list(config)),
        lambda: saver.put(config, checkpoint(), {}, {}),
        lambda: saver.put_writes(at(bad, "c"), [("a", 1)], "task"),
        lambda: saver.delete_thread(bad),
        lambda: saver.copy_thread("good", bad),
        lambda: saver.copy_thread(bad, "other"),
        lambda: saver.prune([bad]),
        lambda: saver.prune([bad], strategy="delete"),
    ]
    for call in calls:
        with pytest.raises(InvalidIdentifier):
            call()
    assert [found.config["configurable"]["thread_id"] for found in saver.list(None)] == ["good"]


@pytest.mark.parametrize("bad", ["ab", b"ab", 5, None])
def test_one_id_and_its_letters_are_no_list(saver: HoldfastSaver, bad: Any) -> None:
    for run in ("a", "b", "ab"):
        saver.put(at("97"), checkpoint({}, run), {"run_id": run}, {})
    for call in (saver.delete_for_runs, saver.prune):
        with pytest.raises(InvalidIdentifier, match="list of ids"):
            call(bad)
    assert [id_of(found.config) for found in saver.list(at("97"))] == ["ab", "b", "a"]


@pytest.mark.parametrize("bad", [None, "", 5, b"r", ["r"], "nul\0"], ids=repr)
def test_what_is_no_run_erases_nothing_beside_others(saver: HoldfastSaver, bad: Any) -> None:
    for name in ("t", "u"):
        saver.put(at(name), checkpoint({}, name), {"run_id": f"run of {name}"}, {})
    saver.put(at("v"), checkpoint({}, "v"), {}, {})
    with pytest.raises(InvalidIdentifier, match="run id"):
        saver.delete_for_runs(["run of t", bad])
    assert [id_of(found.config) for found in saver.list(None)] == ["v", "u", "t"]


@pytest.mark.parametrize(
    "bad", [{"$gt": ""}, "x" * 5000, "nul\0", 7], ids=["dict", "long", "nul", "int"]
)
def test_bad_namespaces_and_checkpoint_ids_are_refused(saver: HoldfastSaver, bad: Any) -> None:
    with pytest.raises(InputError):
        saver.get_tuple(at(namespace=bad))
    with pytest.raises(InputError):
        saver.put(at(), checkpoint({}, bad), {}, {})
    with pytest.raises(InputError):
        saver.get_tuple(at(checkpoint_id=bad))
    with pytest.raises(InputError):
        saver.put_writes(at(checkpoint_id="c", namespace=bad), [("a", 1)], "task")
    assert list(saver.list(None)) == []


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, {"configurable": 3}, None, "t"],
                         ids=["empty", "no thread", "number", "none", "text"])  # fmt: skip
def test_a_config_without_a_thread_is_refused(saver: HoldfastSaver, config: Any) -> None:
    with pytest.raises(InvalidIdentifier):
        saver.get_tuple(config)


def test_numbers_and_uuids_are_thread_ids_as_everywhere_in_langgraph(saver: HoldfastSaver) -> None:
    saver.put(at(7), checkpoint(), {}, {})  # type: ignore[arg-type]
    assert saver.get_tuple(at("7")) is not None


@pytest.mark.parametrize(
    "key",
    ["' OR '1'='1", "source') = '' OR 1=1 --", '"; DROP TABLE sessions; --', "a.b", "$.source", "nul\0"],
    ids=["quote", "paren", "drop", "dotted", "path", "nul"],
)  # fmt: skip
def test_sql_in_the_keys_and_values_of_a_filter_is_only_text(
    saver: HoldfastSaver, key: str
) -> None:
    saver.put(at(), checkpoint({"a": 1}), {"source": "loop"}, {})
    wrong: list[dict[str, Any]] = [{key: "loop"}, {"source": key}, {key: {"$ne": ""}}]
    for wanted in wrong:
        with suppress(InputError):
            assert list(saver.list(at(), filter=wanted)) == []
    notes: Any = {key: "yes"}
    if "\0" not in key:
        saver.put(at(), checkpoint({"a": 2}), notes, {})
        (found,) = saver.list(at(), filter={key: "yes"})
        assert found.checkpoint["channel_values"] == {"a": 2}
    assert saver.get_tuple(at()) is not None


@pytest.mark.parametrize("channel", [{"a": 1}, 7, "nul\0"], ids=["dict", "int", "nul"])
def test_a_bad_channel_is_refused(saver: HoldfastSaver, channel: Any) -> None:
    with pytest.raises(InputError):
        saver.put_writes(at(checkpoint_id="c"), [("fine", 1), (channel, 1)], "task")
    assert saver.store.list_writes("t", "", ["c"]) == []


@pytest.mark.parametrize(
    "bad", [None, "ab", 7, [("c",)], [("c", 1, 2)], [1], ["ab"]], ids=lambda one: repr(one)
)
def test_writes_are_pairs(saver: HoldfastSaver, bad: Any) -> None:
    with pytest.raises(InvalidIdentifier, match="pairs"):
        saver.put_writes(at(checkpoint_id="c"), bad, "task")
    assert saver.store.list_writes("t", "", ["c"]) == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"id": "x"}, "thread 't', channel_values: a dict"),
        ({"id": "x", "channel_values": None}, "thread 't', channel_values: a dict"),
        ({"channel_values": {}}, "external id must be a str"),
        ({}, "thread 't', channel_values: a dict"),
        (None, "thread 't', checkpoint: a dict"),
        ("x", "thread 't', checkpoint: a dict"),
    ],
    ids=["no values", "none for values", "no id", "empty", "none", "text"],
)
def test_what_is_no_checkpoint_is_refused(saver: HoldfastSaver, bad: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        saver.put(at(), bad, {}, {})
    assert list(saver.list(None)) == []


@pytest.mark.parametrize("bad", [None, "x", [("a", 1)]], ids=["none", "text", "pairs"])
def test_metadata_that_is_no_dict_is_refused(saver: HoldfastSaver, bad: Any) -> None:
    with pytest.raises(StateNotSerializable, match="thread 't', metadata: a dict"):
        saver.put(at(), checkpoint(), bad, {})
    assert list(saver.list(None)) == []


@pytest.mark.parametrize(
    "bad", [b"x", "", "abc", [], object(), float("nan"), float("inf")], ids=lambda one: str(one)[:9]
)
def test_what_is_no_version_has_none_after_it(bad: Any) -> None:
    with HoldfastSaver("memory:") as saver, pytest.raises(InvalidIdentifier, match="no version"):
        saver.get_next_version(bad, None)


@pytest.mark.parametrize("bad", ["\ud800", {"k\ud800": 1}], ids=["text", "key"])
def test_a_value_without_a_stored_form_names_thread_and_channel(
    saver: HoldfastSaver, bad: Any
) -> None:
    stored = saver.put(at("t7"), checkpoint({"a": 1}), {}, {})
    with pytest.raises(StateNotSerializable, match=r"thread 't7'.*bad"):
        saver.put(stored, checkpoint({"bad": [bad]}), {}, {})
    with pytest.raises(StateNotSerializable, match="thread 't7', channel 'bad'"):
        saver.put_writes(stored, [("bad", [bad])], "task")
    found = saver.get_tuple(at("t7"))
    assert found is not None
    assert found.config == stored


@pytest.mark.parametrize(
    "what", ["manifest", "chunk", "write", "not a graph's", "time", "metadata", "id"]
)
def test_a_damaged_row_is_named_and_the_others_stay_readable(tmp_path: Path, what: str) -> None:
    path = tmp_path / "a.db"
    with HoldfastSaver(path) as saver:
        good = saver.put(at("good"), checkpoint({"big": "g" * 9000}), {}, {})
        bad = saver.put(at("bad"), checkpoint({"big": "b" * 9000}), {}, {})
        saver.put_writes(bad, [("out", "w" * 9000)], "task")
    with apsw.Connection(str(path)) as connection:
        damage = {
            "manifest": "UPDATE session_checkpoints SET state_snapshot = "
            "replace(state_snapshot, 'channel_versions', 'channel_Versions') WHERE session_id = 'bad'",
            "chunk": "UPDATE chunks SET data = x'00', codec = 0 WHERE digest IN (SELECT "
            "substr(refs, 1, 33) FROM session_checkpoints WHERE session_id = 'bad')",
            "write": "UPDATE checkpoint_writes SET manifest = replace(manifest, 'value', 'Value')",
            "not a graph's": "UPDATE session_checkpoints SET (state_snapshot, refs) = "
            "(SELECT manifest, refs FROM checkpoint_writes) WHERE session_id = 'bad'",
            "time": "UPDATE session_checkpoints SET created_at = 'xx' WHERE session_id = 'bad'",
            "metadata": "UPDATE session_checkpoints SET metadata = '[1]' WHERE session_id = 'bad'",
            "id": "UPDATE session_checkpoints SET id = upper(id) WHERE session_id = 'bad'",
        }  # fmt: skip
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(damage[what])
        assert connection.changes() == 1
    with HoldfastSaver(path) as saver:
        reads: list[Any] = [lambda: saver.get_tuple(bad), lambda: saver.get_tuple(at("bad"))]
        if what != "id":
            reads.append(lambda: list(saver.list(at("bad"))))
        for read in reads:
            with pytest.raises(IntegrityError, match=r"(thread|session) 'bad'") as refused:
                read()
            assert id_of(bad) in str(refused.value)
        found = saver.get_tuple(good)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"big": "g" * 9000}


def test_what_is_no_filter_and_no_list_is_refused(saver: HoldfastSaver) -> None:
    saver.put(at("ab"), checkpoint({"a": 1}), {}, {})
    with pytest.raises(InvalidFilter, match="dict"):
        list(saver.list(at("ab"), filter="abc"))  # type: ignore[arg-type]
    for strategy in ("keep_latest", "delete"):
        with pytest.raises(InvalidIdentifier, match="list of ids"):
            saver.prune("ab", strategy=strategy)
    assert saver.get_tuple(at("ab")) is not None
