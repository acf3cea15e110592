"""How many secrets are found, how fast, and what that adds to an append: ``python -m benchmarks.redaction``."""

from __future__ import annotations

import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

from holdfast.redaction import Redactor
from holdfast.state import StateEncoder
from tests.redaction import corpus

_MEGABYTE = 1_000_000
_APPENDS = 500


def _code() -> str:
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(library.glob("*.py"))
    return "\n".join(one.read_text(encoding="utf-8", errors="replace") for one in files)


def _prose() -> str:
    words = Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split()
    return " ".join(Random(1).choices(words, k=600_000))


def _identities() -> str:
    dice = Random(6)
    return "\n".join(f"session_token: {UUID(int=dice.getrandbits(128))}" for _ in range(20_000))


def _hexadecimal() -> str:
    return "\n".join(Random(2).randbytes(20).hex() for _ in range(80_000))


def _found() -> None:
    """Print how many secrets are found whole, and how many alarms there are without any."""
    redactor = Redactor(b"k")
    total, found = Counter[str](), Counter[str]()
    samples = [("with a mark", text, secret) for _, _, text, secret in corpus.typed(Random(3), 2)]
    samples += [("all named forms", *one[1:]) for one in corpus.named(Random(4), 40)]
    samples += [(title, *rest) for title, _, *rest in corpus.passwords(Random(5), 100)]
    for title, text, secret in samples:
        total[title] += 1
        found[title] += not corpus.is_left(secret, redactor.text(text))
    for title, count in total.items():
        print(f"{title:<26} {count:6} secrets  {100 * found[title] / count:6.2f} % found whole")
    for title, text in (
        ("code", _code()),
        ("commit ids", _hexadecimal()),
        ("UUIDs", _identities()),
    ):
        lines, alarms = text.count("\n"), len(redactor.find(text))
        print(f"{title:<26} {lines:6} lines    {100 * alarms / lines:6.4f} % false alarms")


def _seconds(work: Callable[[], object]) -> float:
    """Return the processor time of the quickest of three runs."""
    took = []
    for _ in range(3):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return min(took)


def _append(screened: bool) -> float:
    """Return the milliseconds of encoding one more message of 1 KB, at the end of many."""
    encoder = StateEncoder(screen=Redactor(b"k") if screened else None)
    text = _prose()
    messages: list[dict[str, str]] = []
    took = []
    for number in range(_APPENDS):
        at = number * 1000
        messages.append({"role": "user", "content": text[at : at + 1000]})
        start = time.process_time()
        encoder.accept(encoder.encode({"messages": messages}))
        took.append(time.process_time() - start)
    return 1000 * sorted(took[-100:])[50]


def main() -> None:
    _found()
    for name, text in (("prose", _prose()), ("code", _code()), ("commit ids", _hexadecimal())):
        # A new one each time: what was found clean is not looked at again.
        seconds = _seconds(lambda text=text: Redactor(b"k").find(text))
        size = len(text) / _MEGABYTE
        print(f"{name:<11} {size:5.1f} MB  {size / seconds:7.1f} MB/s")
    plain, screened = _append(False), _append(True)
    print(f"append of 1 KB after {_APPENDS}: {plain:.3f} ms, with redaction {screened:.3f} ms")


if __name__ == "__main__":
    main()
