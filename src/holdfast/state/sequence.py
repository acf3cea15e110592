"""A large value as a sequence of chunks, kept from one save to the next.

The content of a large list, text or byte string is a run of bytes cut into *leaves*. What a save costs
depends on how the content changed since the one before:

- It only grew: the new bytes become a small leaf of their own. Small leaves at the end are merged as
  they gather, sixteen of one tier into one of the next, and all of them into a full leaf as soon as
  they are large enough for one. Neither the bytes written nor the number of leaves runs away.
- It changed somewhere: leaves that still fit, counted from the front and from the back, stay; only
  what lies between is cut anew, until the cuts are in step with leaves that have moved. The old lengths
  say where to look, so no stored chunk is read.
- Nothing is known of it: it is cut by content.

Above the leaves, every eight references of one level make an index chunk of the next, and those left
over at each level stand in the checkpoint itself. The tree is a pure function of the leaves, so an
append writes an index chunk only when a group is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.model import Buffer
from holdfast.state.chunking import MIN_CHUNK, cut
from holdfast.state.refs import Ref, digest_of, pack_refs

MERGED_LEAVES: Final = 16
GROUPED_REFS: Final = 8
FULL_LEAF: Final = 16 * 1024
MAX_TIER: Final = 15
_CROWDED: Final = 64


@dataclass(slots=True)
class Layout:
    """The leaves of one sequence and the index above them.

    ``tail`` holds the bytes of the small leaves at the end, which the next append may merge; it is
    None where only the references are known. ``groups`` has the index references of each level,
    ``top`` what stands in the checkpoint itself.
    """

    leaves: list[Ref]
    tail: bytes | None
    groups: list[list[Ref]]
    top: list[Ref]


class Sending:
    """What a save sends for all its sequences: the new chunks, and every digest that it names."""

    __slots__ = ("chunks", "named")

    def __init__(self) -> None:
        self.chunks: dict[bytes, Buffer] = {}
        self.named: set[bytes] = set()


def lay_out(content: Buffer, before: Layout | None, sending: Sending) -> Layout:
    """Cut ``content``, reusing the leaves of an earlier layout where they still fit."""
    view = memoryview(content)
    if len(view) < MIN_CHUNK and (before is None or _is_other_leaf(before, view)):
        # One small leaf, or one in place of another, as most are: what follows would come to the same.
        tail = bytes(view)
        leaf = Ref(digest_of(tail), 0, 0, len(tail))
        sending.chunks[leaf.digest] = tail
        return Layout([leaf], tail, [], [leaf])
    old = before.leaves if before is not None else []
    front, start = _matching_front(view, old)
    if before is not None and front == len(old):
        same = Layout(old, _tail(old, view[:start]), before.groups, before.top)
        return append(same, bytes(view[start:]), sending) if start < len(view) else same
    back, end = _matching_back(view, old[front:], start)
    writer = _Writer(known={ref.digest for ref in old})
    between = _cut_between(writer, view[start:end], old[front : len(old) - back])
    leaves = [*old[:front], *between, *old[len(old) - back :]]
    if len(leaves) > _CROWDED and len(view) < len(leaves) * MIN_CHUNK // 2:
        # Many edits have left splinters: cut afresh.
        front, leaves = 0, writer.cut(view)
        writer.keep_only(leaves)
    sending.chunks |= writer.chunks
    return _indexed(leaves, _tail(leaves, view), before, front, sending)


def known_layout(leaves: list[Ref]) -> Layout:
    """Return the layout of leaves that are stored already and whose content was not read."""
    return _indexed(leaves, None, None, 0, Sending())


def tail_leaves(layout: Layout) -> list[Ref]:
    """Return the small leaves at the end, whose bytes `append` needs as the ``tail``."""
    return list(_small_end(layout.leaves))


def append(before: Layout, new: bytes, sending: Sending) -> Layout:
    """Return the layout after ``new`` bytes were added at the end. Needs the ``tail``."""
    writer = _Writer()
    kept = len(before.leaves) - len(_small_end(before.leaves))
    tail = (before.tail or b"") + new
    if len(tail) >= FULL_LEAF:
        leaves = [*before.leaves[:kept], *writer.cut(memoryview(tail))]
        sending.chunks |= writer.chunks
        return _indexed(leaves, b"", before, kept, sending)
    leaves = [*before.leaves, writer.leaf(new, 0)]
    while (
        len(run := leaves[kept:][-MERGED_LEAVES:]) == MERGED_LEAVES
        and len({ref.tier for ref in run}) == 1
    ):
        size = sum(ref.length for ref in run)
        merged = writer.leaf(tail[len(tail) - size :], min(run[0].tier + 1, MAX_TIER))
        leaves[-MERGED_LEAVES:] = [merged]
    writer.keep_only(leaves[-1:])
    sending.chunks |= writer.chunks
    same = min(len(leaves) - 1, len(before.leaves))
    return _indexed(leaves, _tail(leaves, memoryview(tail)), before, same, sending)


def _is_other_leaf(before: Layout, content: memoryview) -> bool:
    """Tell whether a single leaf, whose bytes are known, is no part of ``content`` at either end.

    To compare bytes ends at the first that differs, where to compare digests is to hash all of them.
    """
    known = before.tail
    if len(before.leaves) != 1 or not known or len(known) != before.leaves[0].length:
        return False
    size = len(known)
    return content[:size] != known and content[-size:] != known


class _Writer:
    """Makes leaves and collects the chunks of those that are new."""

    def __init__(self, known: set[bytes] | None = None) -> None:
        self.known = known or set()
        self.chunks: dict[bytes, Buffer] = {}

    def leaf(self, data: Buffer, tier: int) -> Ref:
        ref = Ref(digest_of(data), 0, tier, len(data))
        if ref.digest not in self.known:
            self.chunks[ref.digest] = data
        return ref

    def cut(self, content: memoryview) -> list[Ref]:
        return [self.leaf(piece, 0) for piece in cut(content)] if content else []

    def keep_only(self, leaves: Sequence[Ref]) -> None:
        """Drop the chunks of leaves that were made on the way and are not part of the result."""
        used = {ref.digest for ref in leaves}
        self.chunks = {digest: data for digest, data in self.chunks.items() if digest in used}


def _matching_front(content: memoryview, leaves: Sequence[Ref]) -> tuple[int, int]:
    """Count the leaves that ``content`` still begins with; also return where they end."""
    at = 0
    for count, ref in enumerate(leaves):
        end = at + ref.length
        if end > len(content) or digest_of(content[at:end]) != ref.digest:
            return count, at
        at = end
    return len(leaves), at


def _matching_back(content: memoryview, leaves: Sequence[Ref], start: int) -> tuple[int, int]:
    """Count the leaves that ``content`` still ends with, not reaching before ``start``."""
    end = len(content)
    for count, ref in enumerate(reversed(leaves)):
        at = end - ref.length
        if at < start or digest_of(content[at:end]) != ref.digest:
            return count, end
        end = at
    return len(leaves), end


def _cut_between(writer: _Writer, content: memoryview, old: Sequence[Ref]) -> list[Ref]:
    """Cut what no longer stands where it did, as when the first message of a window has gone.

    The cuts fall into step again soon. Where a piece is a leaf of before, those that followed it then are
    looked for at their lengths, which is much quicker than finding the cuts between them once more.
    """
    # Those at the end gather what is appended, and are cut together again.
    old = old[: len(old) - len(_small_end(old))]
    numbers = {ref.digest: number for number, ref in enumerate(old)}
    leaves: list[Ref] = []
    while content:
        piece = next(cut(content))
        leaf = writer.leaf(piece, 0)
        leaves.append(leaf)
        content = content[len(piece) :]
        if leaf.digest in numbers:
            following = old[numbers[leaf.digest] + 1 :]
            count, end = _matching_front(content, following)
            leaves += following[:count]
            content = content[end:]
    return leaves


def _small_end(leaves: Sequence[Ref]) -> Sequence[Ref]:
    """Return the run of small leaves at the end."""
    first = len(leaves)
    while first and leaves[first - 1].length < MIN_CHUNK:
        first -= 1
    return leaves[first:]


def _tail(leaves: Sequence[Ref], content: memoryview) -> bytes:
    """Return the part of ``content`` that lies in the small leaves at the end."""
    size = sum(ref.length for ref in _small_end(leaves))
    return bytes(content[len(content) - size :])


def _indexed(
    leaves: list[Ref], tail: bytes | None, before: Layout | None, same: int, sending: Sending
) -> Layout:
    """Build the index above ``leaves``, of which the first ``same`` are as they were before."""
    old_groups = before.groups if before is not None else []
    groups: list[list[Ref]] = []
    top: list[Ref] = []
    level = leaves
    while full := len(level) // GROUPED_REFS:
        depth = len(groups)
        old = old_groups[depth] if depth < len(old_groups) else []
        same = min(same // GROUPED_REFS, full, len(old))
        above = old[:same]
        for at in range(same * GROUPED_REFS, full * GROUPED_REFS, GROUPED_REFS):
            run = level[at : at + GROUPED_REFS]
            data = pack_refs(run)
            index = Ref(digest_of(data), depth + 1, 0, sum(ref.length for ref in run))
            if old[len(above) : len(above) + 1] != [index]:
                sending.chunks[index.digest] = data
                sending.named.update(ref.digest for ref in run)
            above.append(index)
        top[:0] = level[full * GROUPED_REFS :]
        groups.append(above)
        level = above
    top[:0] = level
    return Layout(leaves, tail, groups, top)
