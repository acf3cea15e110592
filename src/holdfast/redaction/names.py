"""Does this name promise a secret? ``DB_PASSWORD`` does, ``max_tokens`` and ``public_key`` do not.

A name is split into words, at case changes too. What it ends with counts; what a name often has after
that (``_PROD``, ``_2``) does not.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

CONTEXTUAL: Final = ("password", "token", "api-key", "secret", "credential")
"""The kinds that are known by the name in front of them only."""


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, each once."""
    return frozenset(text.split())


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PASSWORDS: Final = words_of(
    "password passwords passwd pwd passphrase passcode passwort pass pw pgpassword"
)
_TOKENS: Final = words_of("token authtoken accesstoken bearer jwt pat")
_SECRETS: Final = words_of("secret secrets")
_CREDENTIALS: Final = words_of("credential credentials authorization auth")
_KEYS: Final = words_of("apikey secretkey accesskey privatekey authkey")
# What makes a key one that is to be kept.
_KEY_OF: Final = words_of(
    "api access secret private auth encryption encrypt signing sign master service account "
    "shared storage subscription deploy admin application app license webhook hmac jwt "
    "session security integration ingest restricted seed cipher aes"
)
_NOT_TOKENS: Final = words_of(
    "csrf xsrf page pagination continuation sync cursor stop pad eos bos unk mask special "
    "start end next prev previous last sep cls first max min idempotency lease fencing "
    "current each per every lookahead syntax lex parse device"
)
_AFTERWARDS: Final = words_of(
    "prod production dev development staging stage test testing live local default main "
    "primary secondary backup old new value val raw plain text string str env"
)


COOKIES: Final = words_of("cookie set-cookie")
"""Headers with cookies in them, in small letters."""


def kind_of_plural(name: str) -> str | None:
    """Return the kind of secret of which a name promises several, or None."""
    return kind_of_name(name[:-1]) if name.endswith("s") else None


@lru_cache(maxsize=4096)
def kind_of_name(name: str) -> str | None:
    """Return the kind of secret that a name promises, or None."""
    words = [word.lower() for word in _WORD.findall(name[-120:])]
    while len(words) > 1 and (
        words[-1].isdigit() or words[-1] in _AFTERWARDS or words[-2:] == ["key", "base"]
    ):
        words.pop()
    if not words:
        return None
    last = words[-1]
    before = words[-2] if len(words) > 1 else ""
    if last in _PASSWORDS:
        return "password" if last not in ("pass", "pw") or before else None
    if last in _KEYS or (last == "key" and before in _KEY_OF):
        return "api-key"
    if last in _TOKENS:
        return None if before in _NOT_TOKENS else "token"
    if last in _SECRETS:
        return "secret"
    if last in _CREDENTIALS:
        return "credential"
    return None
