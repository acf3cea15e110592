"""JSON is edited as text: what is not edited stays, and what is put in comes out again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.hooks.installing.jsontext import (
    Container,
    NotJson,
    insert_item,
    insert_member,
    parse,
    plain,
    remove,
    replace,
)

LAYOUTS = {
    "empty": "{}",
    "empty over two lines": "{\n}",
    "empty with blanks": "{   }\n",
    "empty with a comment": "{\n  // nothing yet\n}\n",
    "one line": '{"a": 1}',
    "two spaces": '{\n  "a": 1\n}\n',
    "four spaces": '{\n    "a": {"b": [1, 2]},\n    "c": null\n}\n',
    "tabs": '{\n\t"a": [\n\t\t1\n\t]\n}\n',
    "windows": '{\r\n  "a": 1\r\n}\r\n',
    "comma at the end": '{\n  "a": 1,\n}\n',
    "comma and comment": '{\n  "a": 1, // the last\n  // really\n}\n',
    "comment on the line": '{\n  "a": 1 // one  \n}\n',
    "block comment": '/* mine */ { "a": 1 /* one */ } // end',
    "byte order mark": '\ufeff{\n  "a": 1\n}\n',
    "comment signs in a string": '{"a": "http://x /* y */"}',
    "blank lines": '{\n\n  "a": 1\n\n}\n\n\n',
    "no line end": '{\n  "a": 1}',
}


def root_of(text: str) -> Container:
    root = parse(text)
    assert isinstance(root, Container)
    return root


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_what_is_put_in_comes_out_without_a_trace(text: str) -> None:
    value = {"list": [{"x": 1}, "ä"], "empty": {}}

    with_it = insert_member(text, root_of(text), "new", value)

    root = root_of(with_it)
    assert plain(root) == {**plain(parse(text)), "new": value}
    entry = root.find("new")
    assert entry is not None
    assert remove(with_it, root, entry) == text


@pytest.mark.parametrize(
    "text",
    ["[]", "[\n]", "[1]", "[\n  1\n]", "[\n  1, // one\n]", "[[], [1, [2]]]"],
    ids=["empty", "lines", "one", "indented", "comma", "nested"],
)
def test_an_item_of_a_list_goes_in_and_out(text: str) -> None:
    with_it = insert_item(text, root_of(text), {"a": [1]})

    root = root_of(with_it)
    assert plain(root) == [*plain(parse(text)), {"a": [1]}]
    assert remove(with_it, root, root.entries[-1]) == text


def test_an_insertion_looks_like_its_surroundings() -> None:
    text = '{\n\t"a": 1\n}\n'

    assert insert_member(text, root_of(text), "b", {"c": [1]}) == (
        '{\n\t"a": 1,\n\t"b": {\n\t\t"c": [\n\t\t\t1\n\t\t]\n\t}\n}\n'
    )


def test_a_comment_stays_with_what_it_is_about() -> None:
    text = '{\n  "a": 1 // one\n}\n'

    assert insert_member(text, root_of(text), "b", 2) == '{\n  "a": 1, // one\n  "b": 2\n}\n'


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_any_member_can_go(name: str) -> None:
    text = '{\n  "a": 1, // one\n  "b": 2,\n  /* three */ "c": 3\n}\n'
    root = root_of(text)
    entry = root.find(name)
    assert entry is not None

    left = remove(text, root, entry)

    assert plain(parse(left)) == {key: n for key, n in plain(root).items() if key != name}
    assert "// one" in left
    assert "/* three */" in left


def test_of_two_members_with_one_name_the_last_counts() -> None:
    root = root_of('{"a": 1, "a": 2}')

    assert plain(root) == {"a": 2}
    found = root.get("a")
    assert found is not None
    assert replace('{"a": 1, "a": 2}', found, "x") == '{"a": 1, "a": "x"}'


BROKEN = {
    "nothing": "",
    "blank": " \n",
    "not closed": '{"a": 1',
    "comma first": '{,"a": 1}',
    "two commas": '{"a": 1,,}',
    "no comma": '{"a": 1 "b": 2}',
    "no colon": '{"a" 1}',
    "no quotes": "{a: 1}",
    "single quotes": "{'a': 1}",
    "comment not closed": '{"a": 1} /* ',
    "more behind": '{"a": 1} x',
    "string not closed": '{"a": "b}',
    "line break in a string": '{"a": "b\n"}',
    "unknown escape": '{"a": "\\x"}',
    "number": "{a: 01}",
    "half a word": '{"a": tru}',
    "too deep": "[" * 5000 + "]" * 5000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_is_no_json_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(NotJson, match=r"line \d+, column \d+: "):
        parse(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    document=st.dictionaries(st.text(), values, max_size=4),
    value=values,
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    ascii_only=st.booleans(),
)
def test_any_document_is_read_as_json_reads_it_and_survives_a_change(
    document: dict[str, Any], value: Any, indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    assert plain(parse(text)) == document
    document.pop("holdfast", None)
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)

    with_it = insert_member(text, root_of(text), "holdfast", value)

    assert json.loads(with_it) == {**document, "holdfast": value}
    root = root_of(with_it)
    assert remove(with_it, root, root.entries[-1]) == text
