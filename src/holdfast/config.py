"""Settings: the only module that reads the environment and configuration files.

Later ones win: defaults, ``.agents/holdfast.toml`` in the project, the environment, arguments. The file may
have come with a clone. So it chooses a store inside of the project only: one elsewhere, which would get all that
is saved, is used once this user has said that it is right (`holdfast.trust`).

    # .agents/holdfast.toml
    url = "postgresql://agents@db/agents?schema=holdfast"
    tenant = "team-a"

    [retention]
    automatic = 5            # how many to keep
    session = 3
    failure_days = 7         # how long

    [workspace]
    capture = true           # save files with the state
    share = true             # with PostgreSQL, send them along for other machines
    max_file_mb = 100        # leave out larger files
    quota_mb = 10240         # for all snapshots of the project together
    seconds = 600            # for one capture
    include = ["dist"]       # captured although ignored

    [handoff]
    enabled = true           # false: never write to HANDOFF.md
    file = "HANDOFF.md"      # default: .agents/HANDOFF.md, or HANDOFF.md where that exists alone
    rows = 10                # checkpoints in the table
    max_tokens = 5000        # for the whole file; our own section gives way
    template = "…/issue.md"  # for handoffs of single issues

    [gates.start]            # what holdfast gate start asks for; without a table, nothing
    must = ["session", "safe"]
    should = ["clean"]

    [gates.end]
    must = ["checkpoint"]
    should = ["handoff"]

    [redaction]
    enabled = true           # take secrets out of what is saved; default: on the command line only
    kinds = ["github-token"] # these only
    allow = ["test-*"]       # no secrets: texts, beginnings with *, or placeholders

    [[redaction.patterns]]   # a kind of your own
    kind = "acme-key"
    prefix = "acme_"
    characters = "hex"       # alphanumeric, base64, base64url, digits, hex, upper
    length = [32, 64]

    [run]
    when_due = false         # never start parked sessions by a timer

    [hooks]
    enabled = true           # false: agents' hooks do nothing here
    debounce_ms = 1000       # edits within this time of a checkpoint need no further one
    compaction_seconds = 60  # one checkpoint before compactions within this time
    brief_tokens = 1500      # for what an agent is told when its session starts
    transcripts = true       # keep the conversation with the files
    read_only = ["mcp__search__*"]          # tools that change nothing
    seconds = 10             # how long an event waits for the one before it

    [manager]
    feature_list = "feature_list.json"      # what `CheckpointManager` takes features from
    progress = "claude-progress.*"          # the file or files with the agent's notes
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from holdfast.errors import InvalidConfiguration, InvalidUrl, StoreNotTrusted
from holdfast.places import AGENTS_DIR, CONFIG_FILE, DATABASE, URL, find_marked, stated_store
from holdfast.regular_files import read_small_file

__all__ = [
    "AGENTS_DIR",
    "CONFIG_FILE",
    "DATABASE",
    "GATES",
    "SESSION_NUMBER",
    "TOKEN_USAGE",
    "AgentContext",
    "Config",
    "GateSettings",
    "HandoffSettings",
    "HookSettings",
    "ManagerSettings",
    "RunSettings",
    "WorkspaceSettings",
    "check_project_path",
    "find_project_root",
    "key_in_environment",
    "load_config",
    "project_of_database",
    "read_agent_context",
    "surrounding_run",
    "url_text",
    "without_password",
]

SESSION_NUMBER: Final = "HOLDFAST_SESSION_NUMBER"
TOKEN_USAGE: Final = "HOLDFAST_TOKEN_USAGE"
RUN_SESSION: Final = "HOLDFAST_SESSION"
REDACTION_KEY: Final = "HOLDFAST_REDACTION_KEY"
KEY: Final = "HOLDFAST_KEY"
KEY_FILE: Final = "HOLDFAST_KEY_FILE"

_KNOWN: Final = {
    "url",
    "tenant",
    "retention",
    "workspace",
    "handoff",
    "gates",
    "run",
    "manager",
    "hooks",
    "redaction",
}
# Of the file. It may come from strangers, and the time to parse a key grows with the square of its parts.
_MOST_BYTES: Final = 64 * 1024
_MOST: Final = 1_000_000
_LONGEST_PATTERN: Final = 1000
_DIGITS: Final = 18
GATES: Final = ("start", "end")
_RETENTION: Final = {"automatic", "session", "step", "failure_days"}


@dataclass(frozen=True, slots=True)
class WorkspaceSettings:
    """How the project's files are captured."""

    capture: bool = True
    share: bool = True
    max_file_mb: int = 100
    quota_mb: int = 10 * 1024
    seconds: int = 600
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HandoffSettings:
    """What is written for the next reader, and where."""

    enabled: bool = True
    file: str = ""
    rows: int = 10
    max_tokens: int = 5000
    template: str = ""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What one gate asks for: what must hold, and what should."""

    must: tuple[str, ...] = ()
    should: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How wrapped programs are started."""

    when_due: bool = True


@dataclass(frozen=True, slots=True)
class HookSettings:
    """What the hooks of coding agents do."""

    enabled: bool = True
    debounce_ms: int = 1000
    compaction_seconds: int = 60
    brief_tokens: int = 1500
    transcripts: bool = True
    read_only: tuple[str, ...] = ()
    seconds: int = 10


@dataclass(frozen=True, slots=True)
class PatternSettings:
    """A kind of secret of the user's own: what it begins with, and what follows."""

    kind: str = ""
    prefix: str = ""
    characters: str = "alphanumeric"
    length: tuple[int, int] = (16, 255)


@dataclass(frozen=True, slots=True)
class RedactionSettings:
    """Which secrets are taken out of what is saved.

    ``enabled`` is None where nothing was said: the command line does it then, the library does not.
    ``key``, from the environment, is for several machines that share a store.
    """

    enabled: bool | None = None
    kinds: tuple[str, ...] | None = None
    allow: tuple[str, ...] = ()
    patterns: tuple[PatternSettings, ...] = ()
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Which files of the project `CheckpointManager` looks at; ``progress`` may be a pattern."""

    feature_list: str = "feature_list.json"
    progress: str = "claude-progress.*"


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What the environment says of the agent's own session; None where it says nothing."""

    session_number: int | None = None
    token_usage: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """What is in force for one project.

    ``stated_url`` is the store as it was named, to be shown; `url` is for opening it.
    """

    project_dir: Path
    stated_url: str
    trusted: bool = True
    tenant: str | None = None
    retention: Mapping[str, int] = field(default_factory=dict)
    workspace: WorkspaceSettings = WorkspaceSettings()
    handoff: HandoffSettings = HandoffSettings()
    gates: Mapping[str, GateSettings] = field(default_factory=dict)
    run: RunSettings = RunSettings()
    manager: ManagerSettings = ManagerSettings()
    hooks: HookSettings = HookSettings()
    redaction: RedactionSettings = RedactionSettings()

    @property
    def url(self) -> str:
        """The store to open. Raises `StoreNotTrusted` where only the project's own file wants it."""
        if not self.trusted:
            raise StoreNotTrusted(
                f"{self.project_dir / AGENTS_DIR / CONFIG_FILE}, or a link beside it, wants all that is saved "
                f"here to be kept in {without_password(self.stated_url)}, outside of the project, "
                f"and you have not said that this is right. Nothing was opened, sent or lost. If that store is "
                f"yours: holdfast init --trust; if not, take the line or the link out, or name your own with "
                f"--url or {URL}"
            )
        return self.stated_url


def without_password(url: str) -> str:
    """Return a URL as it may be shown, whatever it is: who and where, and no secret."""
    start, separator, rest = url.partition("://")
    if not separator:
        return url
    rest, _, query = rest.partition("?")
    account, at, place = rest.rpartition("@")
    # The name of an option may be escaped: only what is spelt out can be told from a secret.
    shown = [one for one in query.split("&") if re.match(r"(?!.*(password|secret))[a-z_]+=", one)]
    options = f"?{'&'.join(shown)}" if shown else ""
    return f"{start}://{account.partition(':')[0]}{at}{place}{options}"


def find_project_root(start: str | Path | None = None) -> Path:
    """Return the project that ``start`` (the working directory by default) lies in.

    That is the nearest directory upwards that has a Holdfast database or settings, or is the top
    of a git repository, and ``start`` itself when there is none.
    """
    try:
        here = Path(start if start is not None else Path.cwd()).absolute()
    except FileNotFoundError:
        raise InvalidConfiguration("the working directory does not exist any more") from None
    if not here.is_dir():
        raise InvalidConfiguration(f"the project directory does not exist: {here}")
    if ".." in here.parts:
        # Upwards from a/../b is not a, and b may be reached through a link.
        here = here.resolve()
    found = find_marked(str(here))
    return here if found is None else Path(found)


def project_of_database(path: str | Path) -> Path | None:
    """Return the project whose database a file is, there or yet to be made: it lies in its ``.agents``.

    None for one that lies elsewhere: it may be of any project.
    """
    home = os.path.dirname(os.path.abspath(path))
    for one in (home, os.path.realpath(home)):
        if os.path.basename(one) == AGENTS_DIR:
            return Path(os.path.dirname(one))
    return None


# Where each agent keeps its own settings: its variable for that, and the place under the home.
_AGENT_HOMES: Final = {
    "claude-code": ("CLAUDE_CONFIG_DIR", "", ".claude"),
    "codex": ("CODEX_HOME", "", ".codex"),
    "gemini": ("GEMINI_CLI_HOME", ".gemini", ".gemini"),
    "opencode": ("XDG_CONFIG_HOME", "opencode", ".config/opencode"),
}


def agent_home(agent: str) -> Path:
    """Return the directory where a coding agent keeps the settings of this user."""
    variable, inside, under_home = _AGENT_HOMES[agent]
    chosen = os.environ.get(variable)
    try:
        return Path(chosen) / inside if chosen else Path.home() / under_home
    except RuntimeError:
        raise InvalidConfiguration("there is no home directory; set HOME") from None


def url_text(url: object) -> str:
    """Return the URL or path of a store as a text. Raises `InvalidUrl` for what is neither.

    Anything has a text: without this, an environment variable that is not set opens a file called ``None``.
    """
    text = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(text, str):
        # Only of what kind it is: bytes may hold a password.
        raise InvalidUrl(
            f"a store is named by a path, sqlite:///…, postgresql://… or memory:, and not by an "
            f"object of the type {type(url).__name__}"
        )
    return text


def refuse_empty(url: str | Path | None, tenant: str | None) -> None:
    """Raise `InvalidConfiguration` for what is given and empty: whoever gave it did not mean the default."""
    for given, what in ((url, "URL of the store"), (tenant, "tenant")):
        if given == "":
            raise InvalidConfiguration(f"the {what} is empty; name one, or leave it out")


def load_config(
    project_dir: str | Path | None = None,
    *,
    url: str | Path | None = None,
    tenant: str | None = None,
) -> Config:
    """Return the settings of the project that ``project_dir`` lies in. Creates nothing.

    Raises `InvalidConfiguration` for a store or tenant that is given and empty.
    """
    refuse_empty(url, tenant)
    root = find_project_root(project_dir)
    stored = _read_file(root / AGENTS_DIR / CONFIG_FILE)
    chosen = url or stated_store()[0]
    trusted = True
    if not chosen:
        wanted = stored.get("url", f"{AGENTS_DIR}/{DATABASE}")
        chosen = _from_root(wanted, root)
        if not _lies_within(wanted, root):
            # A link is trusted for where it leads.
            chosen = chosen if "url" in stored else os.path.realpath(chosen)
            trusted = _is_trusted(chosen)
    return Config(
        project_dir=root,
        stated_url=url_text(chosen),
        trusted=trusted,
        tenant=tenant or stated_store()[1] or stored.get("tenant"),
        retention=stored.get("retention", {}),
        workspace=_workspace(root / AGENTS_DIR / CONFIG_FILE, stored.get("workspace", {})),
        handoff=_handoff(root / AGENTS_DIR / CONFIG_FILE, stored.get("handoff", {})),
        gates=_gates(root / AGENTS_DIR / CONFIG_FILE, stored.get("gates", {})),
        run=_run(root / AGENTS_DIR / CONFIG_FILE, stored.get("run", {})),
        manager=_manager(root / AGENTS_DIR / CONFIG_FILE, stored.get("manager", {})),
        hooks=_hooks(root / AGENTS_DIR / CONFIG_FILE, stored.get("hooks", {})),
        redaction=_redaction(root / AGENTS_DIR / CONFIG_FILE, stored.get("redaction", {})),
    )


def read_agent_context() -> AgentContext:
    """Read the number of the agent's session and the tokens it used, as they are now."""
    return AgentContext(_count(SESSION_NUMBER), _count(TOKEN_USAGE))


def surrounding_run() -> str:
    """Return the session of the ``holdfast run`` that this process is part of, empty if of none."""
    return os.environ.get(RUN_SESSION, "")


def environment_values() -> list[str]:
    """Return the values of all environment variables, as they are now."""
    return list(os.environ.values())


def check_project_path(path: str, what: str) -> str:
    """Return a path relative to the project. Raises `InvalidConfiguration` for one outside."""
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(parts):
        raise InvalidConfiguration(f"{what} must be a path within the project: {path!r}")
    return path


def _from_root(url: str, root: Path) -> str:
    """Return a URL of the file with a relative path taken from the project's root."""
    if url.startswith("sqlite:///") and not url.startswith("sqlite:////"):
        return f"sqlite:///{root / url.removeprefix('sqlite:///')}"
    return url if ":" in url or url.startswith("~") else str(root / url)


def _lies_within(url: str, root: Path) -> bool:
    """Tell whether a URL of the file is surely a database inside of the project, links followed."""
    path = url.removeprefix("sqlite:///").partition("?")[0]
    if url == "memory:" or not path:
        return True
    if path.startswith("~") or not {":", "%", "\0"}.isdisjoint(path):
        return False
    return Path(os.path.realpath(root / path)).is_relative_to(os.path.realpath(root))


def _is_trusted(url: str) -> bool:
    # Imported here: few projects name a store elsewhere.
    from holdfast.trust import is_known_store

    return is_known_store(url)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads(read_small_file(path, most=_MOST_BYTES).decode())
    except FileNotFoundError:
        return {}
    except (NotADirectoryError, PermissionError) as error:
        # It may be what lies around it that is wrong, and then nobody knows whether it is there at all.
        if os.path.isdir(path.parent) and os.access(path.parent, os.X_OK):
            raise InvalidConfiguration(f"{path} cannot be read: {error.strerror}") from None
        raise InvalidConfiguration(
            f"{path.parent} cannot be used: {error.strerror}. It has to be a directory of yours; nothing was changed"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        # Not every number that is too long, nor what is nested too deeply, is an error of the parser.
        raise InvalidConfiguration(f"{path} cannot be read: {error}") from None
    unknown = settings.keys() - _KNOWN
    retention = settings.get("retention", {})
    if not isinstance(retention, dict):
        raise InvalidConfiguration(f"{path}: retention must be a table")
    unknown |= {f"retention.{key}" for key in retention.keys() - _RETENTION}
    if unknown:
        raise InvalidConfiguration(f"{path}: unknown settings {', '.join(sorted(unknown))}")
    for key in ("url", "tenant"):
        if not isinstance(settings.get(key, ""), str):
            raise InvalidConfiguration(f"{path}: {key} must be a string")
    for key, value in retention.items():
        if type(value) is not int or not 1 <= value <= _MOST:
            raise InvalidConfiguration(
                f"{path}: retention.{key} must be a whole number from 1 to {_MOST:,}"
            )
    return settings


def _workspace(path: Path, settings: Any) -> WorkspaceSettings:
    checked = _table(path, "workspace", settings, WorkspaceSettings)
    return WorkspaceSettings(**{**checked, "include": tuple(checked.get("include", ()))})


def _handoff(path: Path, settings: Any) -> HandoffSettings:
    return HandoffSettings(**_table(path, "handoff", settings, HandoffSettings))


def _run(path: Path, settings: Any) -> RunSettings:
    return RunSettings(**_table(path, "run", settings, RunSettings))


def _hooks(path: Path, settings: Any) -> HookSettings:
    checked = _table(path, "hooks", settings, HookSettings)
    return HookSettings(**{**checked, "read_only": tuple(checked.get("read_only", ()))})


def _gates(path: Path, settings: Any) -> Mapping[str, GateSettings]:
    if not isinstance(settings, dict):
        raise InvalidConfiguration(f"{path}: gates must be a table")
    if unknown := settings.keys() - set(GATES):
        names = ", ".join(f"gates.{key}" for key in sorted(unknown))
        raise InvalidConfiguration(f"{path}: unknown settings {names}")
    found = {}
    for name, items in settings.items():
        checked = _table(path, f"gates.{name}", items, GateSettings)
        found[name] = GateSettings(**{key: tuple(value) for key, value in checked.items()})
    return found


def _table(path: Path, name: str, settings: Any, kind: type) -> dict[str, Any]:
    """Check a table of the file against the fields of a class, by the types of their defaults."""
    if not isinstance(settings, dict):
        raise InvalidConfiguration(f"{path}: {name} must be a table")
    known = {one.name: one.default for one in fields(kind)}
    if unknown := settings.keys() - known:
        names = ", ".join(f"{name}.{key}" for key in sorted(unknown))
        raise InvalidConfiguration(f"{path}: unknown settings {names}")
    for key, value in settings.items():
        wanted = _wanted(value, known[key])
        if wanted is not None:
            raise InvalidConfiguration(f"{path}: {name}.{key} must be {wanted}")
    return settings


def _wanted(value: Any, default: Any) -> str | None:
    """Return what a setting must be if it is not of the kind of its default."""
    if isinstance(default, tuple):
        fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return None if fits else "a list of texts"
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, str):
        return None if isinstance(value, str) else "a text"
    fits = type(value) is int and 1 <= value <= _MOST
    return None if fits else f"a whole number from 1 to {_MOST:,}"


def _manager(path: Path, settings: Any) -> ManagerSettings:
    checked = _table(path, "manager", settings, ManagerSettings)
    for key, value in checked.items():
        check_project_path(value, f"{path}: manager.{key}")
    return ManagerSettings(**checked)


def _redaction(path: Path, settings: Any) -> RedactionSettings:
    if not isinstance(settings, dict):
        raise InvalidConfiguration(f"{path}: redaction must be a table")
    if unknown := settings.keys() - {"enabled", "kinds", "allow", "patterns"}:
        names = ", ".join(f"redaction.{key}" for key in sorted(unknown))
        raise InvalidConfiguration(f"{path}: unknown settings {names}")
    for key, default in (("enabled", True), ("kinds", ()), ("allow", ())):
        if key in settings and (wanted := _wanted(settings[key], default)) is not None:
            raise InvalidConfiguration(f"{path}: redaction.{key} must be {wanted}")
    patterns = settings.get("patterns", [])
    if not isinstance(patterns, list):
        raise InvalidConfiguration(f"{path}: redaction.patterns must be a list of tables")
    return RedactionSettings(
        enabled=settings.get("enabled"),
        kinds=tuple(settings["kinds"]) if "kinds" in settings else None,
        allow=tuple(settings.get("allow", ())),
        patterns=tuple(_pattern(path, one) for one in patterns),
        key=os.environ.get(REDACTION_KEY) or None,
    )


def _pattern(path: Path, settings: Any) -> PatternSettings:
    length: Any = [16, 255]
    if isinstance(settings, dict):
        settings = dict(settings)
        length = settings.pop("length", length)
    checked = _table(path, "redaction.patterns", settings, PatternSettings)
    whole = isinstance(length, list) and [type(one) for one in length] == [int, int]
    if not whole or not 1 <= length[0] <= length[1] <= _LONGEST_PATTERN:
        raise InvalidConfiguration(
            f"{path}: redaction.patterns.length must be two whole numbers from 1 to "
            f"{_LONGEST_PATTERN}, the smaller one first"
        )
    return PatternSettings(**checked, length=(length[0], length[1]))


def _count(name: str) -> int | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise InvalidConfiguration(f"{name} must be a whole number, not {text!r}")
    return int(text)


def key_in_environment() -> Path | Callable[[], str] | None:
    """Return where the environment says that the keys of sealed stores are, or None.

    That is the file of ``HOLDFAST_KEY_FILE``, or ``HOLDFAST_KEY`` itself. Raises `InvalidConfiguration`
    for both at once, and for one that is set to nothing: whoever set it wanted a sealed store.
    """
    given = {name: os.environ[name] for name in (KEY, KEY_FILE) if name in os.environ}
    filled = {name: value for name, value in given.items() if value.strip()}
    if len(filled) > 1:
        raise InvalidConfiguration(f"set {KEY} or {KEY_FILE}, not both: which one seals?")
    if given and not filled:
        names = " and ".join(given)
        raise InvalidConfiguration(
            f"{names}: set, but empty. Nothing was read or stored: set it to the keys, or unset it for "
            f"a store of plain text"
        )
    if KEY_FILE in filled:
        return Path(filled[KEY_FILE])
    return (lambda: filled[KEY]) if filled else None
