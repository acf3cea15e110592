"""Checkpoints as a tree beside their list: which one each builds on, and where lines of work part.

● after another try
│ ● what was rolled back
├─╯
● where both began
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def lanes(nodes: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Return for each node (id and parent, newest first) what is drawn beside it, and below it.

    Below stands something only where lines meet. A parent that is not listed ends its line there.
    """
    listed = list(nodes)
    known = {one for one, _ in listed}
    open_: list[str] = []
    drawn: list[tuple[str, str | None]] = []
    for node, parent in listed:
        if drawn:
            # Lines that lead to this one meet above it.
            drawn[-1] = (drawn[-1][0], _meeting(open_, node))
        mine = open_.index(node) if node in open_ else len(open_)
        open_ = [one for at, one in enumerate(open_) if one != node or at == mine]
        if mine == len(open_):
            open_.append(node)
        drawn.append(
            ("".join("● " if at == mine else "│ " for at in range(len(open_))).rstrip(), None)
        )
        if parent is not None and parent in known:
            open_[mine] = parent
        else:
            del open_[mine]
    return drawn


def is_straight(drawn: Sequence[tuple[str, str | None]]) -> bool:
    """Tell whether there is one line only, which needs no drawing."""
    return all(beside == "●" and below is None for beside, below in drawn)


def _meeting(open_: Sequence[str], node: str) -> str | None:
    """Draw the lines that end at ``node`` into the first of them."""
    places = [at for at, one in enumerate(open_) if one == node]
    if len(places) < 2:
        return None
    first, last = places[0], places[-1]
    text = ""
    for at, one in enumerate(open_):
        if at == first:
            text += "├─"
        elif one == node:
            text += "╯ " if at == last else "┴─"
        elif first < at < last:
            text += "│─"
        else:
            text += "│ "
    return text.rstrip()
