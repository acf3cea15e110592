"""Could there be a secret in this text? A quick answer that needs nothing else to be imported.

What the scanner looks for first stands here: text without any of it holds no secret of a known kind.
"""

from __future__ import annotations

# A token has at least so many characters in a row that are letters, digits or one of these.
RUN = b"a" * 20
RUN_CHARACTERS = bytes(
    97 if chr(one).isascii() and (chr(one).isalnum() or chr(one) in "_-+=~") else 32
    for one in range(256)
)
# Parts of the words that a name with a secret behind it has (token, key, secret, password, auth …), by
# what is looked for: a scan for each part costs more than to pass over what else begins so.
NAMES = {
    b"ke": (b"key", b"ken"),
    b"cre": (b"cret", b"cred"),
    b"pass": (b"pass",),
    b"pwd": (b"pwd",),
    b"uth": (b"uth",),
}
# Anchors of kinds that need not have such a run.
WORDS = (
    *(
        "://",
        "sig=",
        "q~",
        "-----begin ",
        "---- begin ssh2 ",
        "private-lines: ",
        "bearer ",
        "basic ",
        "ookie",
    ),
    *("-u", "--user", "sshpass -p", "docker login ", "mysql", "login ", "identified by "),
)


def may_hold_secret(text: str) -> bool:
    """Tell whether a scan could find anything."""
    data = text.encode("latin-1", "replace")
    lower = data.lower()
    words = (*(word for parts in NAMES.values() for word in parts), *map(str.encode, WORDS))
    return any(word in lower for word in words) or RUN in data.translate(RUN_CHARACTERS)
