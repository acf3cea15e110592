"""Settings: the only module that reads the environment and configuration files.

Later ones win: defaults, ``.agents/holdfast.toml`` in the project, the environment, arguments.

    # .agents/holdfast.toml
    url = "postgresql://agents@db/agents?schema=holdfast"
    tenant = "team-a"

    [retention]
    automatic = 5            # how many to keep
    session = 3
    failure_days = 7         # how long
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.errors import InvalidConfiguration

AGENTS_DIR: Final = ".agents"
DATABASE: Final = "sessions.db"
CONFIG_FILE: Final = "holdfast.toml"

_KNOWN: Final = {"url", "tenant", "retention"}
_RETENTION: Final = {"automatic", "session", "step", "failure_days"}


@dataclass(frozen=True, slots=True)
class Config:
    """What is in force for one project."""

    project_dir: Path
    url: str
    tenant: str = "default"
    retention: Mapping[str, int] = field(default_factory=dict)


def find_project_root(start: str | Path | None = None) -> Path:
    """Return the project that ``start`` (the working directory by default) lies in.

    That is the nearest directory upwards that has a Holdfast database or is the top of a git
    repository, and ``start`` itself when there is none.
    """
    here = Path(start if start is not None else Path.cwd()).absolute()
    if not here.is_dir():
        raise InvalidConfiguration(f"the project directory does not exist: {here}")
    for folder in (here, *here.parents):
        if (folder / AGENTS_DIR / DATABASE).exists() or (folder / ".git").exists():
            return folder
    return here


def load_config(
    project_dir: str | Path | None = None,
    *,
    url: str | Path | None = None,
    tenant: str | None = None,
) -> Config:
    """Return the settings of the project that ``project_dir`` lies in. Creates nothing."""
    root = find_project_root(project_dir)
    stored = _read_file(root / AGENTS_DIR / CONFIG_FILE)
    chosen = url or os.environ.get("HOLDFAST_URL") or stored.get("url")
    return Config(
        project_dir=root,
        url=str(chosen or root / AGENTS_DIR / DATABASE),
        tenant=tenant or os.environ.get("HOLDFAST_TENANT") or stored.get("tenant", "default"),
        retention=stored.get("retention", {}),
    )


def _read_file(path: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
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
        if type(value) is not int or value < 1:
            raise InvalidConfiguration(f"{path}: retention.{key} must be a positive whole number")
    return settings
