"""What a save point takes from around the agent: feature list, progress file, numbers, providers.

The files are part of the file snapshot too, which is what a rollback puts back. Here they are read for
the document and the copies in ``.claude/checkpoints``, and they are saved where files cannot be captured.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.config import ManagerSettings, read_agent_context
from holdfast.effects import error_document
from holdfast.errors import HoldfastError, InvalidConfiguration, InvalidIdentifier
from holdfast.manager.documents import ContextDocument
from holdfast.manager.features import Features, read_features
from holdfast.state.codec import dump_document
from holdfast.workspace.base import readable

_WILD: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Observation:
    """What was found at one moment; ``feature_list`` is None when there is none."""

    feature_list_path: str
    feature_list: bytes | None
    progress: Mapping[str, bytes]
    context: ContextDocument
    features: Features
    providers: Mapping[str, Any] = field(default_factory=dict)
    provider_errors: Mapping[str, Any] = field(default_factory=dict)

    def to_state(self) -> dict[str, Any]:
        """Return the state that the checkpoint holds."""
        return {
            "features": {
                "path": self.feature_list_path,
                "content": self.feature_list,
                "current": self.features.current,
                "completed": list(self.features.completed),
            },
            "progress_files": dict(self.progress),
            "context": dict(self.context),
            "providers": dict(self.providers),
            "provider_errors": dict(self.provider_errors),
        }


class Observer:
    """Looks at one project. Providers are plain functions that return what a state may hold."""

    def __init__(self, root: Path, settings: ManagerSettings) -> None:
        if any("**" in part and part != "**" for part in settings.progress.split("/")):
            raise InvalidConfiguration(
                f"progress must have ** as a directory of its own, if at all: {settings.progress!r}"
            )
        self._root = root
        self._settings = settings
        self._providers: dict[str, Callable[[], Any]] = {}

    def add_provider(self, name: str, provider: Callable[[], Any]) -> None:
        """Have ``provider`` called at every save; a second one of the same name replaces the first."""
        if not callable(provider):
            raise InvalidIdentifier(f"provider {name!r} must be a function that returns a state")
        self._providers[name] = provider

    def remove_provider(self, name: str) -> None:
        """Call it no more."""
        self._providers.pop(name, None)

    @property
    def has_feature_list(self) -> bool:
        """Whether the project has a feature list."""
        return self._read(self._settings.feature_list) is not None

    def features(self) -> Features:
        """Return what the feature list says now."""
        return read_features(self._read(self._settings.feature_list))

    def look(self, **told: int | None) -> Observation:
        """Look at everything. ``told`` are numbers that the caller knows; providers come next.

        What neither knows is taken from the environment, else it stays unknown.
        """
        values, errors = self._ask_providers()
        content = self._read(self._settings.feature_list)
        return Observation(
            feature_list_path=self._settings.feature_list,
            feature_list=content,
            progress=self._read_progress(),
            context=_context(told, values),
            features=read_features(content),
            providers=values,
            provider_errors=errors,
        )

    def paths(self) -> tuple[str, ...]:
        """Return what is to be captured now even where the project's rules ignore it."""
        return (self._settings.feature_list, *self._progress_paths())

    def patterns(self) -> tuple[str, ...]:
        """Return what else would be captured, were it there."""
        return (self._settings.progress,) if self._is_pattern() else ()

    # Inside ----------------------------------------------------------------------------------

    def _ask_providers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        values: dict[str, Any] = {}
        errors: dict[str, Any] = {}
        for name, provider in list(self._providers.items()):
            try:
                value = provider()
                dump_document({"value": value}, "$")
            except Exception as error:
                # Whatever is wrong with a provider, the files are still worth saving.
                errors[name] = dict(error_document(error))
            else:
                values[name] = value
        return values, errors

    def _read_progress(self) -> dict[str, bytes]:
        found = {path: self._read(path) for path in self._progress_paths()}
        return {readable(path): content for path, content in found.items() if content is not None}

    def _progress_paths(self) -> list[str]:
        pattern = self._settings.progress
        if not self._is_pattern():
            return [pattern]
        return sorted(path.relative_to(self._root).as_posix() for path in self._root.glob(pattern))

    def _is_pattern(self) -> bool:
        return not _WILD.isdisjoint(self._settings.progress)

    def _read(self, path: str) -> bytes | None:
        """Return a file's content; None for what is no file, or leads out of the project."""
        full = self._root / path
        try:
            real = full.resolve(strict=True)
            if not real.is_relative_to(self._root.resolve()):
                return None
            if not stat.S_ISREG(os.stat(real).st_mode):
                return None
            return real.read_bytes()
        except (OSError, RuntimeError):
            return None


def check_count(value: object, what: str) -> int | None:
    """Return a number that was told, or None. Raises `InvalidIdentifier` for anything else."""
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise InvalidIdentifier(f"{what} must be a whole number, not {value!r}")
    return value


def _context(told: Mapping[str, int | None], provided: Mapping[str, Any]) -> ContextDocument:
    around = read_agent_context()
    return {
        "session_number": _first("session_number", told, provided, around.session_number),
        "token_usage": _first("token_usage", told, provided, around.token_usage),
    }


def _first(
    key: str, told: Mapping[str, int | None], provided: Mapping[str, Any], around: int | None
) -> int | None:
    known = check_count(told.get(key), key)
    if known is not None:
        return known
    for value in provided.values():
        if isinstance(value, Mapping) and value.get(key) is not None:
            try:
                return check_count(value[key], key)
            except HoldfastError:
                continue
    return around
