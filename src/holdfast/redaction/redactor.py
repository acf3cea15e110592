"""Taking secrets out of texts and of structured values.

In a structure, a name and its value are often parted: a key and its item, the two fields of
``{"name": "API_KEY", "value": "…"}``, a flag and the argument after it. The walk brings them together;
what stands in one text is the scanner's.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from holdfast.redaction.blocks import mended, runs
from holdfast.redaction.names import CONTEXTUAL, COOKIES, kind_of_name, kind_of_plural
from holdfast.redaction.placeholders import (
    MARK,
    PATTERN,
    Finding,
    Placeholder,
    bytes_of,
    cut,
    digest_of,
    masked,
    numbered,
    text_of,
)
from holdfast.state.tags import MARK as TAG
from holdfast.state.tags import MAX_DEPTH, tagged, untagged

if TYPE_CHECKING:
    from holdfast.redaction.kinds import Rule
    from holdfast.redaction.scanner import Scanner

_NAME_FIELDS: Final = ("name", "key", "variable", "header", "Name", "Key")
_VALUE_FIELDS: Final = frozenset({"value", "Value", "val", "plaintext"})
_SHORT_NAMES: Final = frozenset({"pass", "pw"})
# A shorter key cannot be a secret with a mark of its own.
_SHORTEST_KEY: Final = 16
# What was looked at and found clean, to be passed over next time, up to so many characters.
_REMEMBERED: Final = 8 * 1024 * 1024
_SHORTEST: Final = 8
_OVERHEAD: Final = 80
# No secret is longer: what was clean stays so, if nothing was added within this many characters.
LONGEST: Final = 16 * 1024


class Redactor:
    """Replaces secrets by placeholders; the same secret gives the same placeholder.

    redactor = Redactor(key)
    redactor.text("export GITHUB_TOKEN=…")
    """

    def __init__(
        self,
        key: bytes | Callable[[], bytes],
        *,
        kinds: Collection[str] | None = None,
        extra: Iterable[Rule] = (),
        allow: Iterable[str] = (),
    ) -> None:
        """Use the project's ``key``, or what returns it when the first secret is found.

        ``kinds`` are the only ones to look for, ``extra`` rules come on top. ``allow`` lists texts that
        are no secrets: in full, by their beginning and ``*``, or by the placeholder that they became.
        """
        self._key = key
        self._kinds = None if kinds is None else frozenset(kinds)
        self._extra = tuple(extra)
        self._named = frozenset(CONTEXTUAL if kinds is None else set(CONTEXTUAL) & set(kinds))
        allowed = list(allow)
        self._allowed = frozenset(one for one in allowed if not one.endswith("*"))
        self._allowed_starts = tuple(one[:-1] for one in allowed if one.endswith("*"))
        self._clean: set[str] = set()
        self._clean_size = 0

    def with_key(self, key: bytes) -> Redactor:
        """Return a redactor with the same rules and another key."""
        allow = [*self._allowed, *(f"{one}*" for one in self._allowed_starts)]
        return Redactor(key, kinds=self._kinds, extra=self._extra, allow=allow)

    @property
    def extra(self) -> tuple[Rule, ...]:
        """The rules for the user's own kinds."""
        return self._extra

    @property
    def key(self) -> bytes:
        """The key of the digests in placeholders."""
        return self._key() if callable(self._key) else self._key

    @property
    def key_mark(self) -> bytes:
        """What tells this key from another, and nothing of it: the digest of no secret."""
        return bytes.fromhex(digest_of("", self.key))

    # Texts ---------------------------------------------------------------------------------

    def find(self, text: str, name: str = "") -> list[Finding]:
        """Return the secrets of a text, in order. ``name`` is what the text is the value of."""
        findings = [] if text in self._clean else self._scan(text)
        if not findings:
            self._remember(text)
        return self._with_named(text, name, findings) if name else findings

    def _with_named(self, text: str, name: str, findings: list[Finding]) -> list[Finding]:
        """Return the findings and what is a secret by the name of the text, beside them."""
        taken = [(one.start, one.end) for one in findings]
        if MARK in text:
            taken = sorted([*taken, *(match.span() for match in PATTERN.finditer(text))])
        whole = Finding("", 0, len(text))
        rest = "".join(text[one.start : one.end] for one in cut([whole], taken))
        kind = self._named_kind(rest, name, alone=not taken)
        if kind is None:
            return findings
        start = len(text) - len(text.lstrip())
        named = cut([Finding(kind, start, start + len(text.strip()))], taken)
        added = [one for one in named if not self._allows(text, one)]
        return sorted([*findings, *added], key=lambda one: one.start)

    def _scan(self, text: str) -> list[Finding]:
        findings = _scanner(self._kinds, self._extra).find(masked(text))
        if findings and MARK in text:
            findings = list(cut(findings, (match.span() for match in PATTERN.finditer(text))))
        return [one for one in findings if not self._allows(text, one)]

    def text(self, text: str, name: str = "") -> str:
        """Return a text without its secrets."""
        findings = self.find(text, name)
        return self._replaced(text, findings) if findings else text

    def tail(self, text: str, known: int) -> str | None:
        """Return what comes after the first ``known`` characters, which were redacted before.

        None if a secret reaches over that place: then the whole text has to be looked at again.
        """
        start = max(0, known - LONGEST)
        window = text[start:]
        findings = self._scan(window)
        if any(one.start + start < known <= one.end + start for one in findings):
            return None
        new = [one for one in findings if one.start + start >= known]
        shift = known - start
        moved = [Finding(one.kind, one.start - shift, one.end - shift) for one in new]
        return self._replaced(text[known:], moved)

    def raw(self, data: bytes) -> bytes:
        """Return bytes without the secrets that stand in them as text."""
        text = text_of(data)
        clean = self.text(text)
        return data if clean is text else bytes_of(clean)

    def _named_kind(self, text: str, name: str, alone: bool) -> str | None:
        from holdfast.redaction.values import Trust, is_basic, is_cookie, is_named_secret

        if name.lower() in COOKIES:
            return "cookie" if self._wants("cookie") and is_cookie(text) else None
        one = kind_of_name(name)
        kind = one or kind_of_plural(name)
        if kind is None or kind not in self._named:
            return None
        # Beside a secret that was taken out there are words that say what it was; tokens are words, too.
        trust: Trust = "data" if alone and one is not None and kind != "credential" else "bare"
        secret = is_named_secret(text.strip(), password=kind == "password", trust=trust)
        return kind if secret or (kind == "credential" and is_basic(text)) else None

    def _wants(self, kind: str) -> bool:
        return self._kinds is None or kind in self._kinds

    def _allows(self, text: str, finding: Finding) -> bool:
        if not self._allowed and not self._allowed_starts:
            return False
        secret = text[finding.start : finding.end]
        return (
            secret in self._allowed
            or secret.startswith(self._allowed_starts)
            or str(self.placeholder(finding.kind, secret)) in self._allowed
        )

    def placeholder(self, kind: str, secret: str) -> Placeholder:
        """Return what stands in a secret's place."""
        return Placeholder(kind, digest_of(secret, self.key))

    def _replaced(self, text: str, findings: list[Finding]) -> str:
        parts = []
        at = 0
        for one in findings:
            secret = text[one.start : one.end]
            parts += [text[at : one.start], str(self.placeholder(one.kind, secret))]
            at = one.end
        return "".join([*parts, text[at:]])

    def _remember(self, text: str) -> None:
        size = len(text) + _OVERHEAD
        if len(text) < _SHORTEST or size > _REMEMBERED or text in self._clean:
            return
        if self._clean_size + size > _REMEMBERED:
            self._clean, self._clean_size = set(), 0
        self._clean.add(text)
        self._clean_size += size

    # Structures ----------------------------------------------------------------------------

    def value(self, value: Any, name: str = "") -> Any:
        """Return a value of JSON types without its secrets; itself, where there are none."""
        kind = type(value)
        if kind is str:
            return self.text(value, name)
        if kind is dict:
            return self._dict(value, name)
        if kind is list:
            return self.items(value, name=name)
        return value

    def items(self, values: list[Any], *, name: str, before: tuple[Any, ...] = ()) -> list[Any]:
        """Return elements of a list without their secrets; ``before`` is the one in front of them."""
        given, values = values, self._mended(values)
        pair = not before and len(values) == 2
        changed = False
        items: list[Any] = []
        for last, item in zip([*(before or (None,)), *values], values, strict=False):
            called = name
            if type(last) is str and (last[:1] == "-" or (pair and _promises(last))):
                called = last
            new = self.value(item, called)
            changed = changed or new is not item
            items.append(new)
        return items if changed or values is not given else given

    def reaches_back(self, before: list[Any], values: list[Any]) -> bool:
        """Tell whether a secret begins in the elements of a list before these, and ends in one of them."""
        for start, end, field in runs([*before, *values]):
            if start < len(before) < end:
                texts = [one[field] for one in [*before, *values][start:end]]
                border = sum(map(len, texts[: len(before) - start]))
                return any(one.start < border < one.end for one in self.find("".join(texts)))
        return False

    def _mended(self, values: list[Any]) -> list[Any]:
        """Return a list without the secrets that reach from one block to the next."""
        new = values
        for start, end, field in runs(values):
            texts = mended(
                [one[field] for one in values[start:end]],
                self.find,
                lambda kind, secret: str(self.placeholder(kind, secret)),
            )
            if texts is not None:
                blocks = [
                    {**one, field: text} for one, text in zip(values[start:end], texts, strict=True)
                ]
                new = values[:] if new is values else new
                new[start:end] = blocks
        return new

    def fields(self, value: dict[str, Any], *, name: str, shorter_than: int) -> dict[str, Any]:
        """Return a dict with its keys and the short texts directly in it redacted, nothing below."""
        return self._dict(value, name, shorter_than)

    def document(self, document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return a small document of any types without its secrets."""
        if document is None:
            return None
        plain = tagged(dict(document), "$")
        clean = self.value(plain)
        if clean is plain:
            return document
        found: Mapping[str, Any] = untagged(clean, MAX_DEPTH + 8)
        return found

    def _dict(
        self, value: dict[str, Any], name: str, shorter_than: int | None = None
    ) -> dict[str, Any]:
        if (data := _encoded(value)) is not None:
            clean = self.raw(data)
            return value if clean is data else {**value, "v": b64encode(clean).decode()}
        named = _field_name(value) or name
        changed = False
        items: dict[str, Any] = {}
        for key, item in value.items():
            if shorter_than is None or (type(item) is str and len(item) < shorter_than):
                new = self.value(item, _called(key, named))
            else:
                new = item
            new_key = self.text(key) if len(key) >= _SHORTEST_KEY else key
            if new_key is not key and (new_key in value or new_key in items):
                new_key = next(
                    other
                    for number in count(2)
                    if (other := numbered(new_key, number)) not in value and other not in items
                )
            changed = changed or new is not item or new_key is not key
            items[new_key] = new
        return items if changed else value


@lru_cache(maxsize=8)
def _scanner(kinds: frozenset[str] | None, extra: tuple[Rule, ...]) -> Scanner:
    # Its patterns take some time to make: whoever saves nothing is to go without.
    from holdfast.redaction.scanner import Scanner

    return Scanner(kinds, extra)


def _encoded(value: dict[str, Any]) -> bytes | None:
    """Return what is in the form of bytes, or of a text with NUL in it; None for any other dict.

    What agents say is looked through as well, and may have the same keys without being such a form.
    """
    text = value.get("v")
    if value.get(TAG) not in ("bytes", "str") or type(text) is not str:
        return None
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


def _promises(name: str) -> bool:
    return kind_of_name(name) is not None or name.lower() in COOKIES


def _called(key: str, named: str) -> str:
    """Return what an item of a dict is called, whose own name is ``named``."""
    if named and key in _VALUE_FIELDS:
        return named
    # By itself it is a word of many meanings, among credentials it is not.
    return f"{named}_{key}" if key in _SHORT_NAMES and kind_of_name(named) else key


def _field_name(value: dict[str, Any]) -> str:
    """Return the name that a dict with a name and a value in two fields gives to the value."""
    if _VALUE_FIELDS.isdisjoint(value):
        return ""
    names = (value.get(field) for field in _NAME_FIELDS)
    return next((one for one in names if type(one) is str), "")
