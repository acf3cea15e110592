"""A state that a person or a program hands to the command line.

It is read exactly or refused: duplicate keys, NaN, numbers that do not fit and text that is not UTF-8
raise, where common readers would guess. Values that JSON lacks may be given as tags, in the form in
which ``show --json`` prints them.
"""

from __future__ import annotations

import json
from typing import IO, Any, NoReturn

from holdfast.errors import InvalidState, StateCorrupt
from holdfast.state.tags import untagged


def read_state(source: IO[bytes]) -> dict[str, Any]:
    """Read a state from JSON text. Raises `InvalidState` and says where it stopped."""
    name = getattr(source, "name", "the input")
    what = "stdin" if name in ("<stdin>", "-", 0) else str(name)
    try:
        text = source.read().decode("utf-8-sig")
        document = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse, parse_float=_float
        )
        state = untagged(document)
    except UnicodeDecodeError as error:
        raise InvalidState(f"{what} is not UTF-8 text: {error}. Nothing was saved") from None
    except RecursionError:
        raise InvalidState(f"{what} is nested too deeply. Nothing was saved") from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise InvalidState(f"{what} is empty; a state is a JSON object") from None
        raise InvalidState(f"{what} is not JSON: {error}. Nothing was saved") from None
    except (StateCorrupt, ValueError) as error:
        raise InvalidState(f"{what}: {error}. Nothing was saved") from None
    if not isinstance(state, dict):
        raise InvalidState(
            f"{what} must hold a JSON object, not {type(state).__name__}. Nothing was saved"
        )
    return state


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {double!r} stands twice in one object")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f'{constant} is not JSON; write {{"$t": "float", "v": "nan"}}, inf or -inf')


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text} does not fit")
    return number
