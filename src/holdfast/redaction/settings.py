"""From settings to a redactor, and to what brings the secrets back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from holdfast.config import (
    AGENTS_DIR,
    CONFIG_FILE,
    REDACTION_KEY,
    PatternSettings,
    RedactionSettings,
    environment_values,
)
from holdfast.errors import InvalidConfiguration
from holdfast.redaction.placeholders import (
    Placeholder,
    Rehydrate,
    among,
    filled,
    placeholders_in,
)

if TYPE_CHECKING:
    from holdfast.redaction.kinds import Rule
    from holdfast.redaction.redactor import Redactor

Redact: TypeAlias = "bool | Literal['unless off'] | Redactor | None"
"""Whether to redact: None as the settings say, else off; ``"unless off"`` as they say, else on."""

Secrets: TypeAlias = bool | Rehydrate | Iterable[str] | None
"""Where secrets come back from: the environment (True; None while redaction is on), a function that is
asked for each placeholder, or values among which they are found; False from nowhere."""

_KIND: Final = r"[a-z0-9][a-z0-9\-]{0,40}"
_PREFIX: Final = r"[A-Za-z0-9_.:/\-]{3,40}"
_SHORTEST_VALUE: Final = 6


def redactor_for(redact: Redact, settings: RedactionSettings, project_dir: Path) -> Redactor | None:
    """Return the redactor of a project, or None where nothing is redacted."""
    chosen: bool
    if redact is None or redact == "unless off":
        chosen = settings.enabled if settings.enabled is not None else redact is not None
    elif isinstance(redact, bool):
        chosen = redact
    elif not hasattr(redact, "placeholder"):
        raise InvalidConfiguration(
            f"redact must be true, false, 'unless off' or a Redactor, not {redact!r:.80}"
        )
    else:
        return redact
    if not chosen:
        return None
    from holdfast.redaction.redactor import Redactor

    try:
        rules = [_rule(one) for one in settings.patterns]
        if settings.kinds is not None:
            _check_kinds(settings.kinds, rules)
    except InvalidConfiguration as error:
        file = project_dir / AGENTS_DIR / CONFIG_FILE
        raise InvalidConfiguration(f"{file}: {error}") from None
    return Redactor(
        key_of(settings, project_dir), kinds=settings.kinds, extra=rules, allow=settings.allow
    )


def key_of(settings: RedactionSettings, project_dir: Path) -> Callable[[], bytes]:
    """Return what returns a project's key, making it where there is none yet."""
    from holdfast.redaction.keys import load_key, parse_key

    given = None if settings.key is None else parse_key(settings.key, REDACTION_KEY)
    loaded: list[bytes] = [] if given is None else [given]

    def key() -> bytes:
        if not loaded:
            loaded.append(load_key(project_dir / AGENTS_DIR))
        return loaded[0]

    return key


@dataclass(frozen=True, slots=True)
class Redaction:
    """What a session does about secrets: how they are taken out, and where they come back from.

    ``known`` tells whether the secret behind a placeholder is at hand, even where it may not come back.
    ``leaving`` looks at what is taken elsewhere in a bundle, which is redacted unless that is turned off.
    """

    redactor: Redactor | None = None
    leaving: Redactor | None = None
    rehydrate: Rehydrate | None = None
    known: Rehydrate | None = None
    key: Callable[[], bytes | None] = lambda: None

    @classmethod
    def of(
        cls,
        project_dir: Path,
        settings: RedactionSettings,
        *,
        redact: Redact = None,
        rehydrate: Secrets = None,
    ) -> Redaction:
        """Return what the settings and the arguments of `SessionManager.open` come to."""
        redactor = redactor_for(redact, settings, project_dir)

        def key() -> bytes | None:
            if redactor is not None and redactor is redact:
                return redactor.key
            return _present_key(settings, project_dir)

        leaving = redactor
        if redactor is None and redact is None:
            leaving = redactor_for("unless off", settings, project_dir)
        known = _Known(environment_values, key, redactor or leaving)
        return cls(redactor, leaving, known=known, key=key).bringing_back(
            redactor is not None if rehydrate is None else rehydrate
        )

    def bringing_back(self, secrets: Secrets) -> Redaction:
        """Return the same with another place that secrets come back from; None keeps it."""
        if secrets is None:
            return self
        if secrets is False:
            return replace(self, rehydrate=None)
        if secrets is True:
            found: Rehydrate = _Known(environment_values, self.key, self.redactor or self.leaving)
        elif callable(secrets):
            found = secrets
        else:
            values = _texts(secrets)
            found = _Known(lambda: values, self.key, self.redactor or self.leaving)
        return replace(self, rehydrate=found, known=found)

    def looking(self) -> Redactor:
        """Return the rules for a look at what is stored, whether it is redacted or not."""
        from holdfast.redaction.redactor import Redactor

        # Only what differs counts, so any key will do: the project's is not made for a look.
        key = self.key() or os.urandom(32)
        rules = self.redactor or self.leaving
        return Redactor(key) if rules is None else rules.with_key(key)

    def text(self, text: str) -> str:
        """Return a text as it may be stored."""
        return text if self.redactor is None else self.redactor.text(text)

    def document(self, document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return a small document as it may be stored."""
        return document if self.redactor is None else self.redactor.document(document)

    def filled(self, value: Any) -> Any:
        """Return what was stored, with the secrets that may come back."""
        return value if self.rehydrate is None else filled(value, self.rehydrate)

    def missing(self, value: Any) -> list[Placeholder]:
        """Return the placeholders of what was stored whose secrets are not at hand, each once."""
        found = sorted(set(placeholders_in(value)))
        return [one for one in found if self.known is None or self.known(one) is None]


def _texts(secrets: Iterable[str]) -> list[str]:
    """Return values to look among. What is refused is not said: it may be a secret."""
    if isinstance(secrets, (str, bytes)) or not isinstance(secrets, Iterable):
        raise InvalidConfiguration(
            "rehydrate must be true, false, a function that is asked for each placeholder, or a list of "
            f"values, not {type(secrets).__name__}. Nothing was changed"
        )
    values = list(secrets)
    for one in values:
        if not isinstance(one, str):
            raise InvalidConfiguration(
                f"the values of rehydrate must be texts, not {type(one).__name__}. Nothing was changed"
            )
    return values


def _present_key(settings: RedactionSettings, project_dir: Path) -> bytes | None:
    """Return a project's key, None where none was made yet."""
    from holdfast.redaction.keys import find_key, parse_key

    if settings.key is not None:
        return parse_key(settings.key, REDACTION_KEY)
    return find_key(project_dir / AGENTS_DIR)


class _Known:
    """Looks for secrets among values and within them; all is read when a placeholder turns up.

    Within them all kinds are looked for, and those of the user's own that ``rules`` have.
    """

    def __init__(
        self,
        values: Callable[[], Iterable[str]],
        key: Callable[[], bytes | None],
        rules: Redactor | None,
    ) -> None:
        self._key = key
        self._values = values
        self._rules = rules
        self._find: Rehydrate | None = None

    def __call__(self, placeholder: Placeholder) -> str | None:
        from holdfast.redaction.redactor import Redactor

        if self._find is None and (key := self._key()) is not None:
            whole = [one for one in self._values() if len(one) >= _SHORTEST_VALUE]
            redactor = Redactor(key, extra=() if self._rules is None else self._rules.extra)
            # The password of a URL, say, is a part of a value.
            parts = (value[one.start : one.end] for value in whole for one in redactor.find(value))
            self._find = among([*whole, *parts], key)
        return None if self._find is None else self._find(placeholder)


def _check_kinds(kinds: Iterable[str], rules: Iterable[Rule]) -> None:
    from holdfast.redaction.kinds import KINDS

    known = KINDS | {rule.kind for rule in rules}
    if unknown := set(kinds) - known:
        raise InvalidConfiguration(
            f"redaction.kinds has {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}"
        )


def _rule(settings: PatternSettings) -> Rule:
    from holdfast.redaction.kinds import ALPHABETS, extra_rule

    where = "redaction.patterns"
    if not re.fullmatch(_KIND, settings.kind):
        raise InvalidConfiguration(
            f"{where}: kind must be small letters, digits and hyphens: {settings.kind!r}"
        )
    if not re.fullmatch(_PREFIX, settings.prefix):
        raise InvalidConfiguration(
            f"{where}: prefix must be 3 to 40 letters, digits or any of _.:/- : {settings.prefix!r}"
        )
    if settings.characters not in ALPHABETS:
        raise InvalidConfiguration(
            f"{where}: characters must be one of {', '.join(ALPHABETS)}: {settings.characters!r}"
        )
    return extra_rule(settings.kind, settings.prefix, settings.characters, *settings.length)
