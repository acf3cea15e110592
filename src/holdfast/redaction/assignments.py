r"""The value behind a name that promises a secret: where it ends, and how sure it is that it is data.

``NAME=value``, ``"name": "value"``, ``--name value``, ``name: value``, ``<name>value</name>``,
``"name": "NAME", "value": "…"``. Between quotes a value ends at the same quote, and at no other. Without
quotes it depends on what stands around it: in an environment file, in YAML or on a command line it goes on
to the next space, in a query to the next ``&``, in a connection string to the next ``;``, and in what may
be code any sign of code ends it.

A value is looked for within a bounded stretch of text, and the search goes on behind it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Literal, NamedTuple, TypeAlias

from holdfast.redaction.names import kind_of_name
from holdfast.redaction.placeholders import Finding, without_filler
from holdfast.redaction.values import Trust, is_basic, is_named_secret

NAME_CHARACTERS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
)
_NAME_REST: Final = re.compile(r"[A-Za-z0-9_.\-]*+")
_LONGEST_NAME: Final = 80
_LONGEST_QUOTED: Final = 4096
_QUOTE: Final = r"\\{0,31}+[\"'`]"
_INTRODUCED: Final = re.compile(
    # What closes the name: quotes, a subscript's bracket.
    rf"(?P<closed>{_QUOTE})?\]?"
    r"(?:"
    # A field of its own for the value, next to the one with the name.
    rf"(?:,?\s{{0,40}}+(?:{_QUOTE})?[Vv]alue(?:{_QUOTE})?\s{{0,4}}+[:=]\s{{0,4}}+)"
    # An assignment, perhaps with a type.
    r"|(?:\s{0,4}+:\s{0,4}+[A-Za-z_][A-Za-z0-9_.\[\]]{0,40}(?:\s?\|\s?None)?)?\s{0,4}+(?P<equals>:=|=>|=(?!=)|:)[ \t]{0,8}+"
    # In YAML and JSON the value may stand on the next line, in YAML after a mark.
    r"(?:(?:[|>][+\-]?+[ \t]{0,4}+)?\r?\n(?P<indent>[ \t]{1,40}+))?"
    # The next element of a list.
    r"|(?P<next>,\s{0,4}+(?=\\{0,31}+[\"']))"
    r"|(?P<element>>)"
    r"|(?P<argument>[ \t]{1,4}+)"
    r")"
    r"(?:(?i:bearer|basic|token|apikey|api-key|digest)[ \t]{1,2}+)?"
    rf"(?:[fFrRbBuU]{{0,2}}(?P<quote>{_QUOTE}))?"
)
_ENVIRONMENT: Final = re.compile(r"[A-Z][A-Z0-9_]*\Z")

# What may stand before a name at the beginning of a line: the marks of a list, of a diff, of a quotation, a
# number, the name of a file, and the words that set a variable.
_FRONT: Final = 60
_LINE_FRONT: Final = re.compile(
    r"[ \t>+*|\-]*+(?:[\w./\-]*+:)?(?:[0-9]+[\t:|\u2192 ]+)?"
    r"(?:export |set |setx |declare -x |local |ENV |ARG |- )?[\"']?[ \t]*"
)
# In a connection string: another field and a semicolon, or a space.
_CONNECTION_FRONT: Final = re.compile(r"=[^;=\n]*;[ ]?\Z|[a-z]=[^\s;,()=]+ \Z")
# What sets a variable without a sign of equality: in a Dockerfile, in other shells.
_SETTING: Final = re.compile(
    r"(?:^|[\n;&]|\\n)[ \t+\-]*(?:ENV|ARG|set -[A-Za-z]{1,3}|setenv|setx) \Z"
)
# By itself the name of a variable, or a word like any other.
_ALONE: Final = "PASS"
_OUTCOME: Final = re.compile(r"[A-Z]?[a-z]++|[A-Z]++|[0-9]++")
_LINE_BREAK: Final = re.compile(r"\r|\n|\\[nr]")
_UNCLOSED: Final = re.compile(r"[^\"'`\\\r\n]++")
_QUOTED_END: Final = {quote: re.compile(rf"[{quote}\r\n]") for quote in "\"'`"}
_Place: TypeAlias = Literal["code", "line", "variable", "flag", "query", "connection", "element"]


def _until(ends: str, also: str = "") -> re.Pattern[str]:
    """Return the pattern of values that end at a space, a quote, or one of these characters.

    An escaped line break or quote ends a value, too; another backslash is a part of it.
    """
    return re.compile(rf"(?:[^\s\"'`\\{ends}]{also}|\\(?![nrtu\"'`\\])){{1,1024}}+")


_BARE: Final[dict[_Place, re.Pattern[str]]] = {
    "code": re.compile(r"[^\s\"'`,;|<>(){}\\&#]{1,1024}+"),
    "line": _until(""),
    # A quote in the middle of a variable is a part of its value, where there is none around it.
    "variable": _until("", r"|(?<=\w)[\"'](?=\w)"),
    "flag": _until(""),
    "query": _until("&#;<>"),
    "connection": _until(";"),
    "element": re.compile(r"[^<\s]{1,1024}+"),
}
# What ends a sentence, a clause or a command, and no value.
_TRAILING: Final[dict[_Place, str]] = {
    "code": ".:!?",
    "line": "",
    "variable": ";,",
    "flag": ".,;:)]}",
    "query": ".:!?",
    "connection": "",
    "element": "",
}
_REST_OF_LINE: Final = re.compile(r"[ \t]++#|[ \t]*+(?:\\?[\"'])?(?=\r|\n|\\[nr]|\Z)")
_CALLED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*+[(\[{]")
_CALL: Final = frozenset("([{")
_UNFINISHED: Final = frozenset(",;([{:\\")


class _Value(NamedTuple):
    """A candidate: where it lies, and how much is known about its surroundings."""

    start: int
    end: int
    trust: Trust
    code: bool


def assigned(text: str, at: int, wanted: Collection[str]) -> tuple[int, Finding | None]:
    """Return where to look on behind the name that a place is in, and the secret that it introduces."""
    start, end = _name_around(text, at)
    name = text[start:end]
    kind = kind_of_name(name) if end - start <= _LONGEST_NAME else None
    alone = name == _ALONE
    if alone:
        kind = "password"
    match = _INTRODUCED.match(text, end) if kind in wanted else None
    if kind is None or match is None:
        return end, None
    if not _is_introduced(text, match, start, name):
        return end, None
    if alone and not _is_set(text, match, start, end):
        return end, None
    value = _quoted(text, match, name) if match["quote"] else _bare(text, match, start, name)
    if value is None:
        return end, None
    secret = without_filler(text[value.start : value.end])
    found = (
        is_named_secret(secret, password=kind == "password", trust=value.trust)
        if kind != "credential"
        else is_basic(secret) or is_named_secret(secret, password=False, trust="bare")
    )
    if value.code and value.trust == "bare" and text[value.end : value.end + 1] in _CALL:
        found = False  # a call or a subscript
    if alone and _OUTCOME.fullmatch(secret):
        found = False  # an outcome, or how many
    return value.end, Finding(kind, value.start, value.end) if found else None


def _is_introduced(text: str, match: re.Match[str], start: int, name: str) -> bool:
    """Tell whether a name introduces what follows, and does not merely stand before it."""
    if match["next"] is not None:
        return name.startswith("-") and match["closed"] is not None
    if match["element"] is not None:
        return text[start - 1 : start] == "<"
    if match["argument"] is None or name.startswith("-"):
        return True
    if match["quote"] == "'" and name.lower() == "password":
        return True  # SQL
    front = text[max(0, start - _FRONT) : start]
    return _ENVIRONMENT.fullmatch(name) is not None and _SETTING.search(front) is not None


def _is_set(text: str, match: re.Match[str], start: int, end: int) -> bool:
    """Tell whether a name is that of a variable in an environment file, a shell or a list of variables."""
    if match["equals"] != "=" or match.end("equals") != end + 1:
        return False
    if match.end("equals") not in (match.end(), match.start("quote")):
        return False
    front = text[max(0, start - _FRONT) : start]
    begins = len(_LINE_BREAK.split(front)) > 1 or start < _FRONT
    line = _LINE_BREAK.split(front)[-1]
    return front[-1:] in ('"', "'") or (begins and _LINE_FRONT.fullmatch(line) is not None)


def _name_around(text: str, at: int) -> tuple[int, int]:
    """Return where the name begins and ends that a place is in; a long one is cut off in front."""
    start = at
    while start > 0 and at - start <= _LONGEST_NAME and text[start - 1] in NAME_CHARACTERS:
        start -= 1
    match = _NAME_REST.match(text, at)
    return start, at if match is None else match.end()


def _quoted(text: str, match: re.Match[str], name: str) -> _Value | None:
    """Return what stands between quotes: up to the same quote with as many backslashes before it."""
    start = match.end()
    quote = match["quote"][-1]
    slashes = len(match["quote"]) - 1
    end, limit = start, start + _LONGEST_QUOTED
    while (mark := _QUOTED_END[quote].search(text, end, limit)) is not None and mark[0] == quote:
        before = mark.start()
        while before > start and text[before - 1] == "\\":
            before -= 1
        run = mark.start() - before
        # Of more backslashes than at the beginning, each pair is one of the value's own.
        if run < slashes or run % (2 * slashes + 2) == slashes:
            return _as_quoted(match, name, start, mark.start() - min(run, slashes))
        end = mark.end()
    # A quote that nothing closes: the text was cut off, or it is another thing.
    rest = _UNCLOSED.match(text, start, limit)
    return None if rest is None else _as_quoted(match, name, start, rest.end())


def _as_quoted(match: re.Match[str], name: str, start: int, end: int) -> _Value:
    # A quoted name is a field, a variable of the environment is data; else it is a literal of some program.
    if match["argument"] is not None and name.lower() == "password":
        return _Value(start, end, "line", code=False)
    data = match["closed"] is not None or match["argument"] is not None
    attached = match["equals"] == "=" and match.end("equals") == match.start("quote")
    data = data or (attached and _ENVIRONMENT.search(name) is not None)
    return _Value(start, end, "data" if data else "quoted", code=False)


def _bare(text: str, match: re.Match[str], name_start: int, name: str) -> _Value | None:
    """Return what follows without quotes."""
    start = match.end()
    place = _place(text, match, name_start, name)
    found = _BARE[place].match(text, start)
    if found is None:
        return None
    end = _without_trailing(text, start, found.end(), _TRAILING[place])
    if place == "line":
        if not _is_alone(text, start, end) or _CALLED.match(text, start, end):
            return _in_code(text, start)
        # A word: in code it is another name, behind the name of an environment variable a password.
        word = _ENVIRONMENT.search(name) is not None and text[start:end].islower()
        return _Value(start, end, "data" if word else "line", code=False)
    if place == "element" and text[end : end + 1] not in ("<", ""):
        return None  # a sentence
    if place in ("code", "query"):
        return _Value(start, end, "bare", code=True)
    return _Value(start, end, "line" if place == "connection" else "data", code=False)


def _in_code(text: str, start: int) -> _Value | None:
    found = _BARE["code"].match(text, start)
    if found is None:
        return None
    end = _without_trailing(text, start, found.end(), _TRAILING["code"])
    return _Value(start, end, "bare", code=True)


def _without_trailing(text: str, start: int, end: int, characters: str) -> int:
    while end > start and text[end - 1] in characters:
        end -= 1
    return end


def _is_alone(text: str, start: int, end: int) -> bool:
    """Tell whether nothing but a comment follows on the line, and nothing that goes on in the next."""
    return text[end - 1] not in _UNFINISHED and _REST_OF_LINE.match(text, end) is not None


def _place(text: str, match: re.Match[str], name_start: int, name: str) -> _Place:
    """Tell where a name without quotes around its value stands."""
    if match["element"] is not None:
        return "element"
    attached = match["equals"] == "=" and match.end() == match.end("equals")
    if match["argument"] is not None or (attached and name.startswith("--")):
        return "flag"
    if match["equals"] is None or match["closed"] is not None:
        return "code"
    front = text[max(0, name_start - _FRONT) : name_start]
    if attached and front[-1:] in ("?", "&"):
        return "query"
    line = _LINE_BREAK.split(front)
    begins = (len(line) > 1 or name_start < _FRONT) and _LINE_FRONT.fullmatch(line[-1])
    if attached and _ENVIRONMENT.search(name):
        return "variable" if begins or front[-1:] in "\"'" else "flag"
    if begins:
        return "line"
    if attached and _CONNECTION_FRONT.search(front):
        return "connection"
    return "code"
