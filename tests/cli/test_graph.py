"""Trees drawn beside lists."""

import pytest

from holdfast.cli.graph import is_straight, lanes

DRAWN: dict[str, tuple[list[tuple[str, str | None]], list[str]]] = {
    "nothing": ([], []),
    "a line": ([("c", "b"), ("b", "a"), ("a", None)], ["●", "●", "●"]),
    "one that parts": (
        [("d", "a"), ("c", "b"), ("b", "a"), ("a", None)],
        ["●", "│ ●", "│ ●", "├─╯", "●"],
    ),
    "three ways": (
        [("d", "a"), ("c", "a"), ("b", "a"), ("a", None)],
        ["●", "│ ●", "│ │ ●", "├─┴─╯", "●"],
    ),
    "across another": (
        [("f", "a"), ("e", "b"), ("d", "a"), ("b", "a0"), ("a", "a0"), ("a0", None)],
        ["●", "│ ●", "│ │ ●", "│ ● │", "├─│─╯", "● │", "├─╯", "●"],
    ),
    "a parent that is not listed": ([("c", "gone"), ("b", "gone")], ["●", "●"]),
    "two roots": ([("c", "a"), ("b", None), ("a", None)], ["●", "│ ●", "●"]),
}


@pytest.mark.parametrize(("nodes", "expected"), DRAWN.values(), ids=DRAWN.keys())
def test_lines_lead_from_each_to_what_it_builds_on(
    nodes: list[tuple[str, str | None]], expected: list[str]
) -> None:
    drawn = lanes(nodes)
    rows = [row for here, below in drawn for row in (here, below) if row is not None]
    assert rows == expected
    assert is_straight(drawn) == all(row == "●" for row in expected)
