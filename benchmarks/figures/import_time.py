"""How long a fresh process takes to import the package: hooks pay it on every tool call."""

from __future__ import annotations

from benchmarks.harness import (
    Row,
    Run,
    median,
    output_of,
    python,
    show_time,
    show_times,
    take_turns,
)

TARGET_RATIO = 5.0


def measure(run: Run) -> list[Row]:
    def starting(statement: str) -> object:
        return output_of(python("-c", statement))

    contestants = [
        lambda: starting("pass"),
        lambda: starting("import langgraph.checkpoint.base"),
        lambda: starting("import holdfast"),
        lambda: starting("from holdfast import SessionManager"),
    ]
    for contestant in contestants:
        contestant()  # writes the byte code
    bare, peer, ours, manager = map(median, take_turns(run.size(15, 4), *contestants))
    return [
        Row(
            figure='`python -c "import holdfast"`',
            peer=f"`import langgraph.checkpoint.base` {show_time(peer)}",
            ours=show_time(ours),
            ratio=f"{show_times(peer / ours)} faster",
            target=f"≥ {TARGET_RATIO:g} × faster",
            met=peer / ours >= TARGET_RATIO,
            note=(
                f"whole processes, in turn; the bare interpreter alone takes {show_time(bare)},"
                f" `from holdfast import SessionManager` {show_time(manager)}"
            ),
            values={"bare": bare, "peer": peer, "ours": ours, "session_manager": manager},
        )
    ]
