"""Finding secrets in a text, at memory speed where there are none.

A first pass asks two questions that C code answers for the whole text at once. Where are runs of
characters long enough to be a token? There, the anchors of all kinds are looked for, as one pattern.
And where are the few words that a name with a secret behind it has? There, the form of an assignment
is tried. Each rule looks at a bounded stretch of text and at none twice, so the time grows with the
length of the text, whatever it says.

A secret that has a mark of its own is found wherever it stands. Another one is found by the name in
front of it, in the forms that people and programs write (`holdfast.redaction.assignments`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from holdfast.redaction.assignments import NAME_CHARACTERS, assigned
from holdfast.redaction.glance import NAMES, RUN, RUN_CHARACTERS
from holdfast.redaction.kinds import FRAMED, TYPED, Anchor, Rule
from holdfast.redaction.names import CONTEXTUAL
from holdfast.redaction.placeholders import Finding

# How far before a run what belongs to it may begin.
_BEFORE_RUN: Final = 64
_SHORTEST: Final = 8


class Scanner:
    """Finds the secrets of some kinds in texts."""

    def __init__(self, kinds: Collection[str] | None = None, extra: Iterable[Rule] = ()) -> None:
        """Look for these kinds, all by default, and for those of the ``extra`` rules."""
        wanted = [rule for rule in TYPED if kinds is None or rule.kind in kinds]
        framed = [one for one in FRAMED if kinds is None or one[1].kind in kinds]
        self._named = frozenset(CONTEXTUAL if kinds is None else set(CONTEXTUAL) & set(kinds))
        self._framed = [rule for _, rule in framed]
        rules: dict[str, list[tuple[Rule, Anchor]]] = {}
        self._words: dict[bytes, list[Rule]] = {}
        for rule in [*wanted, *extra]:
            for anchor in rule.anchors:
                if rule.in_runs:
                    rules.setdefault(anchor.text, []).append((rule, anchor))
                else:
                    self._words.setdefault(anchor.text.encode(), []).append(rule)
        # Of two anchors of which one begins with the other the longer one is found: it stands for both.
        self._rules = {
            found: [one for text, some in rules.items() if found.startswith(text) for one in some]
            for found in rules
        }
        before = {text: {one.before for _, one in some} for text, some in rules.items()}
        self._anchors = re.compile(
            "|".join([*(one for one, _ in framed), *_tree(before)]) or "(?!)"
        )

    def find(self, text: str) -> list[Finding]:
        """Return the secrets of a text, in order; they do not overlap."""
        if len(text) < _SHORTEST:
            return []
        # One byte for each character, so that places are the same in both.
        data = text.encode("latin-1", "replace")
        lower = data.lower()
        findings = self._in_runs(text, data)
        for word, rules in self._words.items():
            for rule in rules:
                findings += _by_word(text, lower, word, rule)
        if self._named:
            findings += self._assignments(text, lower)
        return _without_overlaps(findings) if len(findings) > 1 else findings

    def _in_runs(self, text: str, data: bytes) -> list[Finding]:
        """Return the secrets that have a run of characters which is long enough."""
        runs = data.translate(RUN_CHARACTERS)
        findings: list[Finding] = []
        end = done = 0
        at = runs.find(RUN)
        while at >= 0:
            start = max(end, at - _BEFORE_RUN)
            end = runs.find(b" ", at + len(RUN))
            end = end if end >= 0 else len(text)
            while (match := self._anchors.search(text, start, end)) is not None:
                # One anchor may hide the beginning of another.
                place = match.start()
                start = place + 1
                for rule, anchor in self._tried(match):
                    if not text.endswith(anchor.before, 0, place) or (
                        anchor.least == anchor.most
                        and rule.bounded
                        and _inside(text, place - anchor.least)
                    ):
                        continue
                    found = rule.find(text, place, anchor)
                    if found is not None and found.secret and found.start >= done:
                        findings.append(Finding(rule.kind, found.start, found.end))
                        start = done = max(start, found.end)
                        break
            at = runs.find(RUN, end)
        return findings

    def _tried(self, match: re.Match[str]) -> list[tuple[Rule, Anchor]]:
        if match.lastindex is None:
            return self._rules[match[0]]
        framed = self._framed[match.lastindex - 1]
        return [(framed, framed.anchors[0])]

    def _assignments(self, text: str, lower: bytes) -> list[Finding]:
        findings: list[Finding] = []
        quiet = 0
        places = [
            at
            for beginning, words in NAMES.items()
            for at in _places(lower, beginning)
            if lower.startswith(words, at)
        ]
        for at in sorted(places):
            if at >= quiet:
                quiet, finding = assigned(text, at, self._named)
                if finding is not None:
                    findings.append(finding)
        return findings


def _inside(text: str, at: int) -> bool:
    """Tell whether a place is in the middle of a word, as far as one look tells."""
    if at <= 0 or text[at - 1] not in NAME_CHARACTERS or text[at - 1] == ".":
        return False
    if text[at - 1] == "m" or text[at - 2 : at - 1] == "\\" or text[at - 3 : at - 2] == "%":
        return False
    return text[max(0, at - 6) : at - 4] != "\\u"


def _by_word(text: str, lower: bytes, word: bytes, rule: Rule) -> Iterator[Finding]:
    """Yield the secrets of a rule that has one anchor."""
    anchor = rule.anchors[0]
    done = 0
    at = lower.find(word)
    while at >= 0:
        found = rule.find(text, at, anchor) if at >= done else None
        if found is not None:
            # Looked at once, whether it is a secret or not.
            done = found.end
            if found.secret:
                yield Finding(rule.kind, found.start, found.end)
        at = lower.find(word, at + len(word))


def _without_overlaps(findings: list[Finding]) -> list[Finding]:
    """Return findings in order, those that overlap as one that covers both.

    Of two for the same place the first counts: what has a mark of its own goes by it.
    """
    kept: list[Finding] = []
    for one in sorted(findings, key=lambda one: (one.start, -one.end)):
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
        elif one.end > kept[-1].end:
            kept[-1] = Finding(kept[-1].kind, kept[-1].start, one.end)
    return kept


def _places(text: bytes, word: bytes) -> list[int]:
    """Return where a word stands."""
    places = []
    at = text.find(word)
    while at >= 0:
        places.append(at)
        at = text.find(word, at + len(word))
    return places


class _Node(dict[str, "_Node"]):
    """What may follow: characters, or an end, and then this is what has to be true there."""

    ends: tuple[str, ...] = ()


def _tree(anchors: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield one pattern for each first character: the literals as a tree, each behind one of some others."""
    root = _Node()
    for anchor, before in anchors.items():
        node = root
        for character in anchor:
            node = node.setdefault(character, _Node())
        behind = (f"(?<={re.escape(one + anchor)})" for one in sorted(before))
        node.ends = ("",) if "" in before else tuple(behind)
    for character in sorted(root):
        yield re.escape(character) + _branches(root[character])


def _branches(node: _Node) -> str:
    branches = [re.escape(character) + _branches(node[character]) for character in sorted(node)]
    branches += node.ends
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
