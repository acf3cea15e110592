"""Placeholders, structures, and the way back."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.errors import InvalidConfiguration
from holdfast.redaction import Placeholder, Redactor, among, filled, placeholders_in
from holdfast.redaction.keys import FILE_NAME, find_key, load_key
from holdfast.redaction.redactor import LONGEST
from tests.redaction import corpus

KEY = b"k" * 32


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(KEY)


@pytest.fixture
def token() -> str:
    return corpus.TOKENS["github-token"][0](Random(1))


def test_the_same_secret_has_the_same_placeholder_and_no_other_has(redactor: Redactor) -> None:
    dice = Random(2)
    tokens = [corpus.TOKENS["github-token"][0](dice) for _ in range(100)]
    seen = {redactor.text(f"a {token} b") for token in tokens}
    assert len(seen) == 100
    assert seen == {Redactor(KEY).text(f"a {token} b") for token in tokens}


def test_without_the_key_a_placeholder_tells_nothing(redactor: Redactor, token: str) -> None:
    assert redactor.text(token) != Redactor(b"other").text(token)
    digests = [
        placeholder.digest
        for number in range(12)
        for placeholder in placeholders_in(Redactor(b"key %d" % number).text(token))
    ]
    # No digit of it is the same whatever the key: that one would come from the secret alone.
    assert len(digests) == 12
    assert all(len(set(digits)) > 1 for digits in zip(*digests, strict=True))


def test_redacting_again_changes_nothing(redactor: Redactor) -> None:
    for _, text, _ in corpus.named(Random(3), 3):
        once = redactor.text(text)
        assert redactor.text(once) == once
    for _, _, text, _ in corpus.typed(Random(3), 1):
        once = redactor.text(text)
        assert redactor.text(once) == once


def test_a_text_that_looks_like_a_placeholder_stays_as_it_is(redactor: Redactor) -> None:
    for text in (
        "[redacted:github-token:0123456789abcdef]",
        "password=[redacted:webhook-secret:0123456789abcdef]",
        "[redacted:secret:0123456789abcdef] and [redacted:]",
    ):
        assert redactor.text(text) == text
        assert redactor.value({"password": text})["password"] == text
        assert filled(text, lambda placeholder: None) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Cookie: a={0}; session={1}\r\n", id="cookie"),
        pytest.param("postgres://u:{0}{1}@host/db", id="url, before"),
        pytest.param("postgres://u:{1}{0}@host/db", id="url, behind"),
        pytest.param("DB_PASSWORD={0}{1}\n", id="variable"),
        pytest.param('password = "{1}{0}{1}"', id="both sides"),
    ],
)
def test_what_stands_beside_a_placeholder_is_taken_out_too(redactor: Redactor, text: str) -> None:
    placeholder = redactor.text(corpus.TOKENS["github-token"][0](Random(7)))
    secret = corpus.some(Random(8), corpus.ALNUM, 20)
    clean = redactor.text(text.format(placeholder, secret))
    assert secret not in clean
    assert placeholder in clean
    assert redactor.text(clean) == clean
    named = redactor.value({"password": f"{placeholder}{secret}"})["password"]
    assert named.startswith(placeholder)
    assert secret not in named


@pytest.mark.parametrize(
    ("value", "path"),
    [
        pytest.param({"api_key": "{}"}, "['api_key']", id="field"),
        pytest.param({"a": [{"clientSecret": "{}"}]}, "['a'][0]['clientSecret']", id="nested"),
        pytest.param({"name": "API_KEY", "value": "{}"}, "['value']", id="pair"),
        pytest.param({"value": "{}", "key": "db_password"}, "['value']", id="pair, value first"),
        pytest.param([["x-api-key", "{}"]], "[0][1]", id="header pair"),
        pytest.param(["tool", "--api-token", "{}", "x"], "[2]", id="arguments"),
        pytest.param({"password": ["{}"]}, "['password'][0]", id="list under a name"),
        pytest.param({"tokens": ["{}"]}, "['tokens'][0]", id="list under a plural"),
        pytest.param({"api_keys": ["{}"]}, "['api_keys'][0]", id="list of keys"),
        pytest.param({"auth": ["bob", "{}"]}, "['auth'][1]", id="pair under a name"),
        pytest.param({"password": {"value": "{}"}}, "['password']['value']", id="value below"),
        pytest.param({"auth": {"user": "bob", "pass": "{}"}}, "['auth']['pass']", id="short name"),
        pytest.param(
            {"env": {"SERVICE_TOKEN": "{}"}}, "['env']['SERVICE_TOKEN']", id="environment"
        ),
    ],
)
def test_a_name_is_brought_together_with_its_value(
    redactor: Redactor, value: Any, path: str
) -> None:
    secret = corpus.some(Random(4), corpus.ALNUM, 32)

    def put(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: put(item) for key, item in node.items()}
        if isinstance(node, list):
            return [put(item) for item in node]
        return secret if node == "{}" else node

    before = put(value)
    after = redactor.value(before)
    found = list(placeholders_in(after))
    assert len(found) == 1
    assert filled(after, among([secret], KEY)) == before
    for step in path.strip("[]").split("]["):
        after = after[step.strip("'") if "'" in step else int(step)]
    assert str(after) == str(found[0])


def test_cookies_are_found_by_the_name_of_their_header(redactor: Redactor) -> None:
    cookie = f"sid={corpus.some(Random(9), corpus.LOWER, 32)}; Path=/"
    for value in (
        {"headers": {"Cookie": cookie}},
        {"headers": {"set-cookie": [cookie]}},
        {"headers": [["Cookie", cookie]]},
    ):
        clean = redactor.value(value)
        assert [one.kind for one in placeholders_in(clean)] == ["cookie"]
        assert filled(clean, among([cookie], KEY)) == value
        assert Redactor(KEY, kinds={"jwt"}).value(value) is value
    assert redactor.value({"cookie": "theme=dark"}) == {"cookie": "theme=dark"}


def test_the_end_of_a_line_is_no_part_of_a_password(redactor: Redactor) -> None:
    secret = corpus.some(Random(9), corpus.ALNUM, 20)
    clean = redactor.value({"password": f"{secret}\n"})
    assert filled(clean, among([secret], KEY)) == {"password": f"{secret}\n"}
    assert clean["password"].endswith("]\n")


@pytest.mark.parametrize("size", [5, 21, 39])
@pytest.mark.parametrize("field", ["text", "delta"])
def test_a_secret_that_reaches_over_blocks_is_found(
    redactor: Redactor, token: str, field: str, size: int
) -> None:
    text = f"the key {token} and {token}, {'x ' * 30}"
    blocks = [{field: text[at : at + size]} for at in range(0, len(text), size)]
    clean = redactor.value({"content": ["before", *blocks, "behind"]})["content"]
    assert "".join(one[field] for one in clean[1:-1]) == redactor.text(text)
    assert [clean[0], clean[-1]] == ["before", "behind"]
    back = filled(clean, among([token], KEY))
    assert "".join(one[field] for one in back[1:-1]) == text
    assert redactor.value(clean) is clean
    messages = [{"role": "user", **one} for one in blocks]
    assert redactor.value(messages) is messages


def test_values_of_harmless_names_stay(redactor: Redactor) -> None:
    value = {
        "max_tokens": "100000000",
        "public_key": corpus.some(Random(5), corpus.ALNUM, 40),
        "next_page_token": corpus.some(Random(5), corpus.ALNUM, 40),
        "password": "",
        "token": None,
        "secret": True,
        "token_count": 7,
        "session_token": "b7c1f0de-52c3-4a57-9d9b-2f5a0a1a6c11",
        "messages": [{"role": "user", "content": "what is a token?"}],
        "tokens": ["hello", "2024-01-01", "transformers", "##ing", "utf8string"],
        "results": {"pass": "unit-tests-12", "value": "unit-tests-12"},
    }
    assert redactor.value(value) is value


def test_secrets_in_keys_and_in_bytes_are_found(redactor: Redactor, token: str) -> None:
    assert token not in str(redactor.value({token: 1}))
    clean = redactor.document({"raw": b"\x00" + token.encode() + b"\xff", "at": datetime.now(UTC)})
    assert clean is not None
    assert token.encode() not in clean["raw"]
    assert clean["raw"].endswith(b"\xff")


def test_no_character_is_cut_where_a_secret_ends(redactor: Redactor) -> None:
    # In UTF-8 its second byte is a space of Latin-1.
    for text in (
        "\0 DB_PASSWORD=Xk9!wq7Zpà",
        "\0mysql -pXk9!wq7Zp4à",
        "\0login x password Zp4!à9Q",
    ):
        clean = redactor.document({"text": text, "raw": text.encode()})
        assert clean is not None
        assert clean["raw"] == clean["text"].encode()


def test_a_dict_that_looks_like_stored_bytes_is_looked_through(
    redactor: Redactor, token: str
) -> None:
    for kind in ("bytes", "str"):
        assert redactor.value({"$t": kind, "v": "é"}) == {"$t": kind, "v": "é"}
        clean = redactor.value({"$t": kind, "v": f"use {token}"})
        assert list(placeholders_in(clean["v"]))


def test_two_keys_stay_two(redactor: Redactor, token: str) -> None:
    placeholder = redactor.text(token)
    for value in ({placeholder: "a", token: "b"}, {token: "b", placeholder: "a"}):
        clean = redactor.value(value)
        assert sorted(clean.values()) == ["a", "b"]
        assert clean[placeholder] == "a"
        assert token not in clean
        assert redactor.value(clean) is clean
        back = filled(clean, among([token], KEY))
        assert sorted(back.values()) == ["a", "b"]
        assert token in back
    both = {placeholder: "a", token: "b"}
    assert filled(both, among([token], KEY)) == both


def test_a_document_without_secrets_is_handed_back_itself(redactor: Redactor) -> None:
    document = {"at": datetime.now(UTC), "path": Path("a"), "n": (1, 2)}
    assert redactor.document(document) is document
    assert redactor.document(None) is None


def test_the_tail_of_a_grown_text_is_enough_unless_a_secret_reaches_over(
    redactor: Redactor, token: str
) -> None:
    before = "line\n" * 10
    assert redactor.tail(before + "more", len(before)) == "more"
    added = redactor.tail(before + f"{token} x", len(before))
    assert added == redactor.text(f"{token} x")
    cut = before + token[:20]
    assert redactor.tail(before + token, len(cut)) is None
    behind = f"{token} " + "y" * LONGEST
    assert redactor.tail(behind + "z", len(behind)) == "z"


def test_values_come_back_from_what_is_known_and_the_rest_stays(
    redactor: Redactor, token: str
) -> None:
    other = corpus.TOKENS["gitlab-token"][0](Random(6))
    state = redactor.value({"a": f"x {token} y {other}", "b": [token], "c": 1})
    back = filled(state, among([token, "unrelated"], KEY))
    assert back["b"] == [token]
    assert back["a"].startswith(f"x {token} y [redacted:gitlab-token:")
    assert [one.kind for one in placeholders_in(back)] == ["gitlab-token"]
    asked: list[Placeholder] = []
    filled(state, asked.append)
    assert {one.kind for one in asked} == {"github-token", "gitlab-token"}


def test_values_come_back_into_bytes_and_paths_too(redactor: Redactor, token: str) -> None:
    password = "Pä9!wq7Zp4ß"
    given = {
        "raw": b"\xff\x00" + token.encode() + b"\xc3",
        "url": f"https://bob:{password}@host/".encode(),
        "path": Path("/srv") / token / "log",
    }
    stored = redactor.document(given)
    assert stored is not None
    assert len(list(placeholders_in(stored))) == 3
    assert filled(stored, among([token, password], KEY)) == given
    assert filled(stored, among([], KEY)) == stored


def test_the_key_is_made_once_and_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".agents"
    assert find_key(folder) is None
    # From the first byte on: what is taken away later was open until then.
    monkeypatch.setattr(os, "chmod", lambda *_, **__: None)
    before = os.umask(0)
    try:
        key = load_key(folder)
    finally:
        os.umask(before)
    assert len(key) == 32
    assert load_key(folder) == key == find_key(folder)
    assert {path.name for path in folder.iterdir()} == {FILE_NAME, ".gitignore"}
    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600


def test_a_damaged_key_is_refused_not_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("not a key")
    with pytest.raises(InvalidConfiguration, match="hexadecimal"):
        load_key(tmp_path)
    assert (tmp_path / FILE_NAME).read_text() == "not a key"


def leading_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [leading_nowhere, os.mkdir, os.mkfifo])
def test_what_is_no_key_file_is_refused_with_its_name_and_what_to_do(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    put(tmp_path / FILE_NAME)
    with pytest.raises(InvalidConfiguration, match=rf"{FILE_NAME} cannot be read: .*remove it"):
        load_key(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".gitignore"] == [FILE_NAME]


def test_the_key_is_asked_for_with_the_first_secret_only(token: str) -> None:
    asked = []

    def key() -> bytes:
        asked.append(1)
        return KEY

    lazy = Redactor(key)
    lazy.text("nothing here")
    assert asked == []
    lazy.text(token)
    assert asked
