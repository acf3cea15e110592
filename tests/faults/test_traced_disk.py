"""The disk that a trace tells of: what a power cut leaves of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.traced_disk import TracedDisk, read_trace


class Trace:
    """Writes lines as strace does: names, content and the paths of handles in hexadecimal."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self._lines: list[str] = []

    def add(self, call: str, result: int = 0, *, process: int = 7) -> None:
        """Add a call; ``'name'`` is a path below the top or some content, ``<name>`` an open file."""
        parts = re.split("'|(?=<)|>", call)
        for number in range(1, len(parts), 2):
            part = parts[number]
            handle = part.startswith("<")
            path = f"{self.top}/{part.strip('<')}" if handle or part.startswith("/") else part
            text = "".join(
                f"\\x{byte:02x}" for byte in path.replace("//", "/").rstrip("/").encode()
            )
            parts[number] = f"<{text}>" if handle else f'"{text}"'
        self._lines.append(f"{process} {''.join(parts)} = {result}\n")

    def replay(self, disk: TracedDisk, file: Path) -> list[bool]:
        file.write_text("".join(self._lines))
        return [disk.follow(call) for call in read_trace(file)]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.mkdir()
    (path / "old").write_text("before")
    return path


def left(top: Path, trace: Trace, *, names: bool) -> dict[str, str]:
    disk = TracedDisk(top)
    trace.replay(disk, top.with_name("trace"))
    disk.cut(names_were_written=names)
    return {path.name: path.read_text() for path in top.iterdir()}


def test_what_was_not_synced_is_lost_and_its_name_with_it_or_not(top: Path) -> None:
    trace = Trace(top)
    trace.add("openat(AT_FDCWD, '/new', O_WRONLY|O_CREAT, 0644)", 3)
    trace.add("write(3<new>, 'text', 4)", 4)
    assert left(top, trace, names=False) == {"old": "before"}
    assert left(top, trace, names=True) == {"old": "before", "new": ""}


def test_a_sync_keeps_the_file_and_all_names_so_far(top: Path) -> None:
    trace = Trace(top)
    trace.add("openat(AT_FDCWD, '/other', O_WRONLY|O_CREAT, 0644)", 3)
    trace.add("write(3<other>, 'lost', 4)", 4)
    trace.add("openat(AT_FDCWD, '/new', O_WRONLY|O_CREAT, 0644)", 4)
    trace.add("write(4<new>, 'kept', 4)", 4)
    trace.add("fsync(4<new>)")
    trace.add("rename('/new', '/old')")
    assert left(top, trace, names=False) == {"old": "before", "other": "", "new": "kept"}
    assert left(top, trace, names=True) == {"old": "kept", "other": ""}


def test_what_was_sent_is_kept_with_a_sync_of_something_else(top: Path) -> None:
    trace = Trace(top)
    trace.add("openat(AT_FDCWD, '/new', O_WRONLY|O_CREAT, 0644)", 3)
    trace.add("write(3<new>, 'sent', 4)", 4)
    trace.add("sync_file_range(3<new>, 0, 0, SYNC_FILE_RANGE_WRITE)")
    assert left(top, trace, names=True)["new"] == ""
    trace.add("fsync(5<>)")
    assert left(top, trace, names=False)["new"] == "sent"


def test_calls_that_failed_or_end_later_are_told_apart(top: Path) -> None:
    trace = Trace(top)
    trace.add("unlink('/old')", -1)
    disk = TracedDisk(top)
    assert trace.replay(disk, top.with_name("trace")) == []
    file = top.with_name("trace")
    trace.add("unlink('/old')")
    failed, unlinked = file.read_text(), trace._lines[-1]
    begun, _, ended = unlinked.partition(")")
    file.write_text(
        f'{failed}{begun} <unfinished ...>\n8 chdir("\\x2f") = 0\n7 <... unlink resumed>){ended}'
    )
    assert [call.name for call in read_trace(file)] == ["chdir", "unlink"]


def test_a_call_that_is_not_known_is_no_secret(top: Path) -> None:
    trace = Trace(top)
    trace.add("pwritev(3<old>, 4)", 4)
    with pytest.raises(AssertionError, match="pwritev"):
        trace.replay(TracedDisk(top), top.with_name("trace"))


def test_two_names_of_a_file_stay_two_names_of_it(top: Path) -> None:
    trace = Trace(top)
    trace.add("link('/old', '/same')")
    assert left(top, trace, names=True) == {"old": "before", "same": "before"}
    assert (top / "old").samefile(top / "same")
