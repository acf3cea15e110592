"""Rings of keys: how they are written, where they come from, and that they are read again."""

import base64
import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing, keys_from
from holdfast.crypto.envelope import Envelopes
from holdfast.crypto.files import add_key, new_key_file
from holdfast.errors import InvalidConfiguration, InvalidKey, KeyRequired, SealBroken
from holdfast.stores import open_store
from holdfast.stores.sealed import SealedStore

KEY = base64.b64encode(bytes(range(32))).decode()


def test_a_ring_is_a_text_and_comes_back() -> None:
    ring = KeyRing.new().rotated()
    again = KeyRing.parse(f"# for people: not an entry\n{ring.text()}")
    assert (again.keys, again.names, again.current) == (ring.keys, ring.names, ring.current)
    assert list(again.keys) == list(ring.keys)
    in_one_line = ",".join(ring.text().split())
    assert KeyRing.parse(in_one_line).keys == ring.keys


def test_a_ring_never_shows_its_keys() -> None:
    ring = KeyRing.new()
    for key in (*ring.keys.values(), ring.names):
        assert base64.b64encode(key).decode() not in repr(ring)
        assert repr(key) not in repr(ring)


@pytest.mark.parametrize("digits", [KEY, KEY.rstrip("="), KEY.replace("+", "-").replace("/", "_")])
def test_base64_is_read_in_either_alphabet(digits: str) -> None:
    assert KeyRing.parse(f"a:{digits} names:{digits}").keys == {"a": bytes(range(32))}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no key"),
        (f"names:{KEY}", "no key"),
        (f"a:{KEY}", "no entry 'names'"),
        (f"{KEY} names:{KEY}", "entry 1"),
        (f"A!:{KEY} names:{KEY}", "entry 1"),
        (f"a:{KEY} a:{KEY} names:{KEY}", "twice"),
        (f"a:c2hvcnQ= names:{KEY}", "'a'"),
        (f"a:*** names:{KEY}", "'a'"),
    ],
    ids=["empty", "no key", "no names", "no id", "odd id", "twice", "short", "no base64"],
)
def test_what_is_no_ring_is_refused_without_being_shown(text: str, says: str) -> None:
    with pytest.raises(InvalidKey, match=says) as refused:
        KeyRing.parse(text)
    assert KEY not in str(refused.value)


def test_the_environment_seals_every_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text(KeyRing.new().text())
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(file))
    with SessionManager.open(workspace=False) as manager:
        assert isinstance(manager.store, SealedStore)
        session = manager.create_session(agent_type="t", task_description="secret")
        session.save_checkpoint("one", state={"a": 1})
    monkeypatch.delenv("HOLDFAST_KEY_FILE")
    with pytest.raises(KeyRequired):
        SessionManager.open(workspace=False)
    monkeypatch.setenv("HOLDFAST_KEY", file.read_text())
    with SessionManager.open(workspace=False) as manager:
        assert manager.get_session(session.id).load_checkpoint("one").state == {"a": 1}
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(file))
    with pytest.raises(InvalidConfiguration, match="not both"):
        SessionManager.open(workspace=False)


@pytest.mark.parametrize("name", ["HOLDFAST_KEY", "HOLDFAST_KEY_FILE"])
@pytest.mark.parametrize("value", ["", " \n"], ids=["empty", "blank"])
def test_a_variable_that_is_set_to_nothing_makes_no_store_of_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidConfiguration, match=f"{name}: set, but empty.*unset it"):
        open_store(tmp_path / "new.db")
    assert list(tmp_path.iterdir()) == []
    # Where the other one has keys, they are the ones.
    file = tmp_path / "keys"
    file.write_text(KeyRing.new().text())
    other = {"HOLDFAST_KEY": ("HOLDFAST_KEY_FILE", str(file))}
    monkeypatch.setenv(*other.get(name, ("HOLDFAST_KEY", file.read_text())))
    with open_store(tmp_path / "new.db") as store:
        assert isinstance(store, SealedStore)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, ring: KeyRing) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path(os.devnull)):
        with pytest.raises(InvalidKey, match="not a regular file"):
            KeyRing.from_file(path)
    file, link = tmp_path / "keys", tmp_path / "link"
    file.write_text(ring.text())
    link.symlink_to(file)
    assert KeyRing.from_file(link).keys == ring.keys
    file.write_text("#" * (16 << 20) + "\n" + ring.text())
    with pytest.raises(InvalidKey, match="too large"):
        KeyRing.from_file(link)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"nothing"], ids=["none", "binary", "text"])
def test_a_file_without_keys_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidKey, match="keys"):
        open_store("memory:", keys=path)
    with pytest.raises(InvalidKey):
        open_store("memory:", keys="k:text")  # type: ignore[arg-type]


def test_a_function_may_return_bytes(ring: KeyRing) -> None:
    assert keys_from(lambda: ring.text().encode()).ring.keys == ring.keys


@pytest.mark.parametrize(
    "given", [None, 7, b"\xff\xfe", b"", ["a"]], ids=["None", "number", "binary", "empty", "list"]
)
def test_a_function_that_returns_no_keys_is_refused(given: Any) -> None:
    with pytest.raises(InvalidKey):
        open_store("memory:", keys=lambda: given)


def test_a_new_key_is_found_while_running(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    before = KeyRing.new()
    path.write_text(before.text())
    running = Envelopes(keys_from(path))
    after = before.rotated()
    sealed = Envelopes(keys_from(lambda: after)).seal(b"new", "x", "default")
    with pytest.raises(SealBroken, match=after.current):
        running.open(sealed, "x", "default")
    path.write_text(after.text())
    assert running.open(sealed, "x", "default") == b"new"
    # From then on it seals with the new one too.
    assert after.current.encode() in running.seal(b"next", "x", "default")


def test_of_keys_that_several_add_at_once_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first = new_key_file(file)
    with ThreadPoolExecutor(4) as threads:
        added = list(threads.map(lambda _: add_key(file), range(20)))
    assert KeyRing.from_file(file).keys.keys() == {first, *added}
    assert list(tmp_path.iterdir()) == [file]


def test_what_people_wrote_beside_their_keys_stays_when_one_is_added(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    before = f"# made for the auditors\na:{KEY} # the first\nnames:{KEY}\n"
    file.write_text(before)
    current = add_key(file)
    entry, _, rest = file.read_text().partition("\n")
    assert (entry.partition(":")[0], rest) == (current, before)
    assert list(KeyRing.from_file(file).keys) == [current, "a"]


def test_the_ends_of_lines_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    before = f"# made on Windows\r\na:{KEY}\r\nnames:{KEY}\r\n".encode()
    file.write_bytes(before)
    add_key(file)
    assert file.read_bytes().partition(b"\n")[2] == before


def test_whoever_keeps_a_key_file_locked_keeps_nobody_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr("holdfast.crypto.files._PATIENCE", 0.05, raising=False)
    file = tmp_path / "keys"
    new_key_file(file)
    before = file.read_bytes()
    with file.open("rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_SH)
        with pytest.raises(InvalidKey, match=r"locked for 0\.05 seconds.* It is as it was"):
            add_key(file)
    assert file.read_bytes() == before
    assert add_key(file) == KeyRing.from_file(file).current


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_file_is_locked_where_only_a_file_open_for_writing_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """As over NFS."""
    fcntl = pytest.importorskip("fcntl")
    flock, found = fcntl.flock, []

    def over_nfs(handle: Any, how: int) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(handle, how)
        found.append(how)

    file = tmp_path / "keys"
    new_key_file(file)
    file.chmod(mode)
    monkeypatch.setattr(fcntl, "flock", over_nfs)
    assert add_key(file) == KeyRing.from_file(file).current
    assert stat.S_IMODE(file.stat().st_mode) == mode
    assert found or not os.access(file, os.W_OK)


@pytest.mark.parametrize("text", ["", f"names:{KEY}", f"k:{KEY}"])
def test_a_ring_that_lacks_something_is_put_right_rather_than_made_anew(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        InvalidKey, match=r"^the text of the keys \(HOLDFAST_KEY, .* has no .* copy"
    ):
        KeyRing.parse(text)
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(InvalidKey, match="opens nothing of what another has sealed"):
        KeyRing.from_file(file)
