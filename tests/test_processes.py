"""A process is told from another one with the same id, and a dead one from a live one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import runner
from holdfast.processes import (
    Process,
    is_gone,
    is_running,
    owner_name,
    process_in,
    this_process,
    uptime,
)


def test_this_process_lives_and_its_text_can_be_read_back() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert me.started.isdigit()
    assert process_in(str(me)) == me
    assert is_gone(me) is False
    assert this_process() == me
    assert owner_name(str(me)) == f"process {os.getpid()} on {me.host}"


def test_a_process_that_was_killed_is_gone_even_before_its_parent_noticed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        stat = Path(f"/proc/{child.pid}/stat").read_text()
        named = this_process()._replace(pid=child.pid, started=stat.rpartition(")")[2].split()[19])
        assert is_gone(named) is False
        child.kill()
        # It has ended, and only its parent, which has not asked, keeps its id from being used again.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(named) is True
    assert is_gone(named) is True


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"started": "1"}, True),
        ({"pid": 2**22 + 1}, True),
        ({"place": "another boot.1"}, False),
        ({"host": "elsewhere"}, False),
        ({"started": "-"}, False),
    ],
    ids=["reused id", "no such id", "another place", "another host", "start unknown"],
)
def test_only_here_and_only_by_its_start_is_a_process_known_to_be_gone(
    change: dict[str, object], gone: bool
) -> None:
    named = this_process()._replace(**change)  # type: ignore[arg-type]
    assert is_gone(named) is gone
    assert not is_running(named)


@pytest.mark.parametrize("owner", ["agent:claude:1", "", "process:a:b:c:d", "process:host:1:2"])
def test_other_owners_are_no_processes(owner: str) -> None:
    assert process_in(owner) is None
    assert owner_name(owner) == owner


def test_the_owner_of_a_wrapped_program_is_its_wrappers_process() -> None:
    assert process_in(runner.owner()) == this_process()
    assert is_running(this_process())


def test_a_host_may_have_colons() -> None:
    named = Process("fe80::1", "boot.1", 7, "9")
    assert process_in(str(named)) == named


def test_uptime_goes_forward_within_one_boot() -> None:
    first, second = uptime(), uptime()
    assert first.boot == second.boot != "-"
    assert first.seconds <= second.seconds


def test_a_process_of_the_command_line_says_that_it_is_a_command() -> None:
    program = (
        "import sys; sys.argv[1:] = ['--version']\n"
        "from holdfast.cli import main\n"
        "from holdfast.processes import own_name, owner_name\n"
        "try: main()\n"
        "except SystemExit: print(own_name()); print(owner_name(own_name()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    _, owner, said = done.stdout.splitlines()
    assert owner.startswith("command:process:")
    assert said == f"process {owner.split(':')[4]} on {this_process().host}"
