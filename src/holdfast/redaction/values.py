"""Is this text a secret? What can be said of a value by itself.

A mark or a name in front of it has made it a candidate; here it is told from what people write in
the same places: examples, references to where the secret is, words, code.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections import Counter
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from holdfast.redaction.names import words_of

Trust: TypeAlias = Literal["data", "quoted", "line", "bare"]
"""How sure it is that a name's value is data: a field or an environment file, a literal in code, all
that stands on a line behind a name, a word in code that may as well be another name."""

# Written in the place of a secret, or a reference to it. A password may begin with any character: what
# begins like a reference has to have the shape of one.
_STAND_INS: Final = re.compile(
    r"example|changeme|change[_\-]me|place[_\-]?holder|your[_\-]|[_\-]here\b|xxxx|\*\*\*|\.\.\.|…|"
    r"redacted|dummy|process\.env|os\.environ|getenv|import\.meta|"
    r"\$\{[^{}]*\}|^\$[({]|\$\([^()]*\)|\{\{|^%\(|%[a-z_]+%|^%[sdrv]$|^[<{\[(][^<>{}\[\]()]*[>}\])]|^\{[\"'\\]|^\{[a-z_.]+[\[(:!]|"
    r"^@[a-z_./\-]+$|^~[a-z_.\-]*/|^\.{1,2}/|^[a-z][a-z0-9+.\-]*://|"
    r"^(?:arn|file|vault|secret|op|env|ref):|^sha(?:1|256|384|512)[:\-]|^md5[:\-]",
    re.IGNORECASE,
)
_VARIABLE: Final = re.compile(
    r"\$(?:[A-Z_][A-Z0-9_]{2,}(?![A-Za-z0-9])|[a-z_][A-Za-z_]*[0-9]?(?:->[A-Za-z_]+|\[.*\])*\Z|[0-9@*#]\Z)"
)
_PATH: Final = re.compile(r"/[A-Za-z0-9_.@+\-/]*")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WORDS: Final = words_of(
    "password passwd passwort passphrase passcode secret token username user admin string "
    "text hidden required optional default unknown undefined null none true false test "
    "testing foobar credential credentials authorization bearer basic value number object "
    "boolean integer function method submit postgres localhost root guest anonymous example "
    "missing empty disabled enabled changed invalid expired revoked access refresh option "
    "options argument arguments flag parameter parameters field setting settings prompt"
)
_NAME_LIKE: Final = re.compile(r"_{0,2}[A-Za-z]+(?:[_.\-:/ ]+[A-Za-z]+)*[_.\-]?")
_IN_CODE: Final = re.compile(
    r"[A-Za-z_]+[0-9]{1,3}|[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+|[A-Za-z0-9]*_[A-Za-z0-9_]*|"
    r".*[(\[].*|[A-Za-z0-9_.]+(?:[=+*/<>-]+|&&|\|\|)[A-Za-z0-9_.]+"
)
_KEY_LINE: Final = re.compile(r"[A-Za-z0-9+/]{24}")
_VARIED: Final = 7


def is_varied(secret: str) -> bool:
    """Tell a token from its picture: ``ghp_xxxxxxxxxxxx``, ``AKIA…EXAMPLE``."""
    return len(set(secret)) >= _VARIED and "EXAMPLE" not in secret and "xxxxx" not in secret.lower()


def is_password(secret: str) -> bool:
    """Tell whether this may be the password of a URL."""
    return not is_stand_in(secret) and secret.lower() not in _URL_WORDS and len(set(secret)) > 1


_URL_WORDS: Final = (
    frozenset(["pass", "passw", "pw", "pwd", "pass123", "port", "1234", "12345"]) | _WORDS
)


def is_login(secret: str) -> bool:
    """Tell the password of ``-u name:password`` from the number of a group."""
    if not is_password(secret) or secret.isdigit():
        return False
    return not is_name_like(secret) or _changes(secret) >= 4


def is_bearer(secret: str) -> bool:
    """Tell a bearer token from the next word of a sentence."""
    if is_stand_in(secret) or is_name_like(secret) or entropy(secret) <= 2.5:
        return False
    return len(secret) >= 20 or _changes(secret) >= 4


def is_basic(secret: str) -> bool:
    """Tell basic credentials from the next word of a sentence: they decode to ``user:password``."""
    try:
        plain = b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except ValueError:  # no base64, or not even ASCII
        return False
    return b":" in plain and plain.isascii() and plain.decode().isprintable()


def is_cookie(secret: str) -> bool:
    """Tell whether a cookie header has something in it that is worth stealing."""
    values = (part.partition("=")[2].strip() for part in secret.split(";"))
    return any(
        len(one) >= 16 and not is_stand_in(one) and not is_name_like(one) and entropy(one) > 2.8
        for one in values
    )


def is_key(secret: str) -> bool:
    """Tell a private key from the frame of one."""
    return _KEY_LINE.search(secret) is not None


def is_named_secret(value: str, *, password: bool, trust: Trust) -> bool:
    """Tell whether the value of a name that promises a secret is one."""
    if len(value) < (6 if password else 8) or len(value) > 4096 or is_stand_in(value):
        return False
    if any(one.isspace() for one in value) or _UUID.fullmatch(value):
        return False
    if is_name_like(value):
        return _is_unlike_a_name(value, password=password, trust=trust)
    if value.isdigit() and not (password and trust != "bare"):
        return False
    if trust == "bare" or (trust == "line" and not (password and _is_no_code(value))):
        long = 12 if trust == "bare" else 10
        return (
            len(value) >= long
            and "[" not in value
            and _changes(value) >= 4
            and entropy(value) >= 3.0
        )
    return entropy(value) >= (2.0 if password else 2.5)


def _is_unlike_a_name(value: str, *, password: bool, trust: Trust) -> bool:
    """Tell a secret from a word or a name, where it consists of letters only."""
    if trust == "data" and password:
        # Where no code can stand, a word is a password.
        return value.lower() not in _WORDS
    if not value.isalpha():
        return False
    if password and len(value) >= 14 and _changes(value) >= 6:
        return True
    if (password or trust == "data") and trust != "bare" and len(value) >= 8 and _is_mixed(value):
        return True
    return trust in ("data", "quoted") and len(value) >= 20 and entropy(value) >= 4.0


def _is_no_code(value: str) -> bool:
    """Tell a password from what a program assigns to a variable: ``token2``, ``a.b1``, ``args[0]``."""
    return _IN_CODE.fullmatch(value) is None


def is_stand_in(value: str) -> bool:
    """Tell whether this is written in the place of a secret: an example, or where to find it."""
    return (
        _STAND_INS.search(value) is not None
        or _VARIABLE.match(value) is not None
        or (_PATH.fullmatch(value) is not None and not _is_mixed(value))
    )


def is_name_like(value: str) -> bool:
    """Tell whether this could be a word, a name or a path of names."""
    return _NAME_LIKE.fullmatch(value) is not None


def _is_mixed(value: str) -> bool:
    """Tell whether small and capital letters and digits follow each other as if by chance."""
    return _changes(value) >= max(4, 0.35 * len(value))


def _changes(value: str) -> int:
    """Count the changes between small and capital letters and digits; names have few."""
    kinds = [
        "d" if one.isdigit() else "u" if one.isupper() else "l" for one in value if one.isalnum()
    ]
    return sum(a != b for a, b in pairwise(kinds))


def entropy(value: str) -> float:
    """Return the bits per character, from how often each occurs in it."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())
