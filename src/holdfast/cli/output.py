"""How answers look: JSON for programs, plain text for pipes and files, colours for a terminal.

rich is imported only to draw on a terminal. It honours NO_COLOR and dumb terminals by itself.
Whatever was stored is printed with its control characters escaped: a checkpoint's name cannot move
the cursor or recolour a terminal.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from holdfast.model import CheckpointRecord, SessionRecord
from holdfast.state.tags import tagged

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.sessions.passed_over import PassedOver

PASCAL_CASE: Final = "holdfast.pascal_case"
"""Where the context of a command says that keys are wanted in that form."""

_STORED: Final = frozenset({"state", "metadata", "task_state", "value", "changes", "did"})
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

# Those of them that JSON leaves as they are, in UTF-8: in none but a string can they stand.
_LEFT_BY_JSON: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


# Programs -------------------------------------------------------------------------------------


def to_json(document: Mapping[str, Any], *, indent: bool = True) -> bytes:
    """Return an answer as JSON, in UTF-8 whatever the terminal's encoding. Times are ISO 8601.

    It too may be read on a terminal, and means the same with control characters spelled out. Bytes of a
    name or an argument that are no UTF-8 are spelled out too.
    """
    option = orjson.OPT_INDENT_2 if indent else 0
    try:
        text = orjson.dumps(document, option=option)
    except TypeError:
        text = orjson.dumps(_in_unicode(document), option=option)
    return _LEFT_BY_JSON.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), text)


def _in_unicode(document: Any) -> Any:
    """Return an answer in which every text has a form in UTF-8."""
    if isinstance(document, str):
        return path_text(document)
    if isinstance(document, list | tuple):
        return [_in_unicode(item) for item in document]
    if isinstance(document, dict):
        return {_in_unicode(key): _in_unicode(value) for key, value in document.items()}
    return document


def answer(document: Mapping[str, Any]) -> None:
    """Print an answer for programs."""
    if click.get_current_context().meta.get(PASCAL_CASE):
        document = pascal_case(document)
    click.echo(to_json(document))


def pascal_case(document: Any) -> Any:
    """Return an answer with keys like CreatedAt; what users stored keeps its own."""
    if isinstance(document, list):
        return [pascal_case(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        "".join(part.capitalize() for part in key.split("_")): (
            value if key in _STORED else pascal_case(value)
        )
        for key, value in document.items()
    }


def columns(record: CheckpointRecord | SessionRecord) -> dict[str, Any]:
    """Return a record under the names of its columns."""
    kind = SessionRecord if isinstance(record, SessionRecord) else CheckpointRecord
    values = {one.name: getattr(record, one.name) for one in fields(kind)}
    if record.metadata is not None:
        values["metadata"] = exact(dict(record.metadata))
    return values


def exact(value: object) -> Any:
    """Return a stored value as JSON, tagged where JSON has no form of its own."""
    return tagged(value, "$")


# People ---------------------------------------------------------------------------------------


def on_terminal(*, err: bool = False) -> bool:
    """Tell whether a person is watching."""
    return (sys.stderr if err else sys.stdout).isatty()


def console(*, err: bool = False) -> Console:
    """Return what draws on the terminal: one for stdout and one for stderr."""
    return _console(err)


@cache
def _console(err: bool) -> Console:
    from rich.console import Console

    return Console(stderr=err, highlight=False, markup=False, emoji=False)


def one_line(text: str) -> str:
    """Return stored text as a single harmless line."""
    return printable(text).replace("\n", "\\n")


def printable(text: str) -> str:
    """Return stored text with control characters, except the end of a line, spelled out."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def source_line(line: str) -> str:
    """Return a line of somebody's file for a terminal: tabs stay, other control characters do not."""
    return "\t".join(one_line(path_text(part)) for part in line.split("\t"))


def standing(record: SessionRecord, quarantined: int) -> str:
    """Return a session's status, with how many of its checkpoints are not used any more."""
    return f"{record.status}, {quarantined:,} in quarantine" if quarantined else record.status


def cells(text: str) -> int:
    """Return how many cells of a terminal a line of text takes: wide characters take two, accents none."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    # What joins the character before it: accents, marks of format, the later parts of a Korean syllable.
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return the text with spaces up to ``width`` cells, in front of it with ``right``."""
    spaces = " " * (width - cells(text))
    return f"{spaces}{text}" if right else f"{text}{spaces}"


def shortened(text: str, width: int, tail: int = 0) -> str:
    """Return the text in at most ``width`` cells: what is too much is left out before the last ``tail``."""
    if cells(text) <= width:
        return text
    end = _beginning(text[::-1], tail)[::-1]
    return f"{_beginning(text, width - tail - 1)}…{end}"


def _beginning(text: str, width: int) -> str:
    """Return as much of a text as has room in so many cells."""
    taken = accumulate(map(_cells_of, text))
    return "".join(one for one, up_to in zip(text, taken, strict=True) if up_to <= width)


def path_text(path: str | Path) -> str:
    """Return a path fit for JSON and terminals: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def size(count: int) -> str:
    """Return a number of bytes as people say it."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def when(moment: datetime | None) -> str:
    """Return a time in the reader's own time zone; as it is, where it has no place in that one's calendar."""
    if moment is None:
        return ""
    with suppress(OverflowError):
        moment = moment.astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def plural(count: int, noun: str, many: str | None = None) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {many or f'{noun}s'}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Where a terminal is too narrow, columns give way: those with the higher ``give`` first, each down
    to its ``least`` width. Where that is not enough, columns are left out, those with the higher
    ``leave`` first. Those with neither always stay as they are.
    """

    title: str
    style: str = ""
    right: bool = False
    give: int = 0
    least: int = 12
    leave: int = 0


def print_table(layout: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their titles: fitted to a terminal, complete and unabridged elsewhere."""
    table = [
        [column.title, *(one_line(row[at]) for row in rows)] for at, column in enumerate(layout)
    ]
    widths = {at: max(map(cells, texts)) for at, texts in enumerate(table)}
    if on_terminal():
        filled = {at: width for at, width in widths.items() if not rows or any(table[at][1:])}
        widths = _fitted(layout, filled, console().width)
    for number in range(len(rows) + 1):
        parts: list[tuple[str, str]] = []
        for at, width in widths.items():
            text = padded(shortened(table[at][number], width), width, right=layout[at].right)
            parts.append((f"{text}  ", layout[at].style if number else "bold"))
        parts[-1] = (parts[-1][0].rstrip(), parts[-1][1])
        print_line(*parts)


def _fitted(layout: Sequence[Column], widths: Mapping[int, int], room: int) -> dict[int, int]:
    """Return the columns that have room, by their places, and how wide each is."""
    least = {
        at: min(width, layout[at].least) if layout[at].give else width
        for at, width in widths.items()
    }
    for at in sorted(widths, key=lambda at: -layout[at].leave):
        if layout[at].leave and _length(least) > room:
            del least[at]
    fitted = {at: widths[at] for at in least}
    for at in sorted(fitted, key=lambda at: -layout[at].give):
        fitted[at] -= max(0, min(_length(fitted) - room, fitted[at] - least[at]))
    return fitted


def _length(widths: Mapping[int, int]) -> int:
    """Return how long lines of columns of these widths are."""
    return sum(widths.values()) + 2 * (len(widths) - 1)


def print_line(*parts: str | tuple[str, str], err: bool = False) -> None:
    """Print one line; a part may be a pair of text and style, which shows on a terminal only."""
    if not on_terminal(err=err):
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        click.echo(text.rstrip(), err=err)
        return
    from rich.text import Text

    console(err=err).print(Text.assemble(*parts), soft_wrap=True)


def unreadable_document(rows: Mapping[str, Exception]) -> list[dict[str, str]]:
    """Return what no listing can show, with the reasons, for JSON."""
    return [{"id": id_, "reason": str(error)} for id_, error in rows.items()]


def print_unreadable(rows: Mapping[str, Exception], what: str = "session") -> None:
    """Name sessions, or what else, that no listing can show, apart from what it shows."""
    for id_, error in rows.items():
        print_line(
            ("unreadable ", "bold red"),
            f"{what} {one_line(id_)}: {one_line(str(error))}. `holdfast verify` tells of all damage",
            err=True,
        )


def print_passed_over(found: Sequence[PassedOver]) -> None:
    """Say which newer checkpoints are not what is shown or used, apart from that."""
    for one in found:
        print_line((f"note: {one_line(one.text)}", "yellow"), err=True)


def print_text(text: str) -> None:
    """Print stored text of several lines as it is, but for control characters."""
    if not on_terminal():
        click.echo(printable(text), nl=False)
        return
    from rich.text import Text

    console().print(Text(printable(text)), end="")


def print_document(document: object) -> None:
    """Print a stored value as indented JSON, coloured on a terminal."""
    text = printable(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    if not on_terminal():
        click.echo(text)
        return
    from rich.highlighter import JSONHighlighter
    from rich.text import Text

    drawn = Text(text)
    JSONHighlighter().highlight(drawn)
    console().print(drawn, soft_wrap=True)
