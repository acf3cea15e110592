"""The file for what the database cannot take: what is erased from it, beside those who write into it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Thread

import pytest

from holdfast.autosave.fallback import Entry, FallbackLog

WRITER = """
import sys
from pathlib import Path
from holdfast.autosave.fallback import Entry, FallbackLog
log = FallbackLog(Path(sys.argv[1]), max_bytes=1 << 23)
for number in range(300):
    log.append(Entry("2026-01-01T00:00:00Z", f"kept {number}", session_id="kept"))
print("done", flush=True)
"""


def entry(message: str, session_id: str) -> Entry:
    return Entry("2026-01-01T00:00:00Z", message, session_id=session_id)


def test_lines_that_are_added_while_others_are_erased_stay(tmp_path: Path) -> None:
    log = FallbackLog(tmp_path, max_bytes=1 << 23)
    log.append(entry("erased", "gone"))
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        while writer.poll() is None:
            log.append(entry("erased", "gone"))
            log.forget("default", ["gone"])
    assert writer.returncode == 0
    found = [one.message for one in log.entries()]
    assert found == [f"kept {number}" for number in range(300)]


def test_a_line_that_is_met_half_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FallbackLog(tmp_path)
    write, erasers = os.write, []

    def halting(handle: int, line: bytes) -> int:
        half = write(handle, line[: len(line) // 2])
        erasers.append(Thread(target=log.forget, args=("default", ["gone"])))
        erasers[-1].start()
        # It would long have ended if it did not wait.
        erasers[-1].join(0.3)
        return half + write(handle, line[half:])

    with monkeypatch.context() as during:
        during.setattr(os, "write", halting)
        log.append(entry("kept", "kept"))
        log.append(entry("erased", "gone"))
        log.append(entry("kept too", "kept"))
    for eraser in erasers:
        eraser.join()
    assert [one.message for one in log.entries()] == ["kept", "kept too"]


def test_whoever_keeps_the_log_locked_has_nothing_lost_and_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr("holdfast.autosave.fallback._PATIENCE", 0.05)
    log = FallbackLog(tmp_path)
    log.append(entry("erased", "gone"))
    with log.path.open("rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        log.append(entry("kept", "kept"))
        with pytest.raises(OSError, match="locked"):
            log.forget("default", ["gone"])
    assert [one.message for one in log.entries()] == ["erased", "kept"]
    log.forget("default", ["gone"])
    assert [one.message for one in log.entries()] == ["kept"]


def test_no_line_is_lost_when_several_find_the_log_full(tmp_path: Path) -> None:
    size = len(json.dumps(asdict(entry("n00", "kept"))).encode()) + 1
    log = FallbackLog(tmp_path, max_bytes=20 * size)
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda n: log.append(entry(f"n{n:02}", "kept")), range(40)):
            pass
    assert sorted(one.message for one in log.entries()) == [f"n{n:02}" for n in range(40)]


def test_what_is_erased_is_not_in_the_files_any_more(tmp_path: Path) -> None:
    log = FallbackLog(tmp_path, max_bytes=600)
    for number in range(4):
        log.append(entry(f"a secret of {number}", "gone"))
        log.append(entry(f"kept {number}", "kept"))
    with log.path.open("ab") as file:
        file.write(b'{"at": "torn secr')
    log.forget("default", ["gone"])
    stored = b"".join(path.read_bytes() for path in log.path.parent.iterdir())
    assert b"secr" not in stored
    assert {one.session_id for one in log.entries()} == {"kept"}
    log.append(entry("after", "kept"))
    assert [one.message for one in log.entries()][-1] == "after"


def test_nothing_is_erased_through_a_link(tmp_path: Path) -> None:
    log = FallbackLog(tmp_path)
    log.path.parent.mkdir()
    mine = tmp_path / "mine"
    mine.write_text("a file of somebody's\n")
    log.path.symlink_to(mine)
    with pytest.raises(OSError, match="symbolic links"):
        log.forget("default", None)
    assert mine.read_text() == "a file of somebody's\n"
