"""The chart of stored bytes over steps, written as SVG by hand.

    python -m benchmarks.chart        draws it again from the latest results

Colours follow the reader's light or dark mode; the card behind them keeps the chart readable on a
page that does not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT, Row, show_bytes

CHART = ROOT / "docs" / "images" / "growth.svg"
LATEST = ROOT / "benchmarks" / "results" / "latest.json"

_WIDTH, _HEIGHT = 800, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 596, 88, 384
_LOWEST, _HIGHEST = 1e4, 2e10
_DECADES = {
    1e4: "10 KB",
    1e5: "100 KB",
    1e6: "1 MB",
    1e7: "10 MB",
    1e8: "100 MB",
    1e9: "1 GB",
    1e10: "10 GB",
}
_MESSAGE_BYTES = 1093

_STYLE = """
    .card { fill: #ffffff; stroke: #d8dee4; }
    .grid { stroke: #e7ebef; stroke-width: 1; }
    .axis { stroke: #8c959f; stroke-width: 1; }
    text { font-family: system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #57606a; font-size: 12px; }
    .title { font-size: 17px; font-weight: 600; fill: #1f2328; }
    .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round; }
    .peer { stroke: #cf5b16; } .ours { stroke: #0a6cbd; } .content { stroke: #8c959f; stroke-width: 1.5; }
    .dashed { stroke-dasharray: 2 7; }
    .dot { stroke: none; }
    .dot.peer { fill: #cf5b16; } .dot.ours { fill: #0a6cbd; } .dot.content { fill: #8c959f; }
    .name { font-size: 13px; font-weight: 600; }
    .name.peer { fill: #b34a0c; stroke: none; } .name.ours { fill: #0a5ca3; stroke: none; }
    .name.content { fill: #57606a; stroke: none; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; stroke: #30363d; }
      .grid { stroke: #21262d; }
      .axis { stroke: #6e7681; }
      text { fill: #9198a1; }
      .title { fill: #f0f6fc; }
      .peer { stroke: #ff9a57; } .ours { stroke: #58b0ff; } .content { stroke: #6e7681; }
      .dot.peer { fill: #ff9a57; } .dot.ours { fill: #58b0ff; } .dot.content { fill: #6e7681; }
      .name.peer { fill: #ff9a57; } .name.ours { fill: #58b0ff; } .name.content { fill: #9198a1; }
    }
"""

Point = tuple[float, float]


@dataclass(frozen=True)
class Samples:
    """Bytes by step: the peer's as far as it was run, ours four times as far."""

    peer: Sequence[Point]
    ours: Sequence[Point]

    @property
    def steps(self) -> int:
        return int(self.ours[-1][0])


def collect(rows: Iterable[Row]) -> Samples | None:
    """Find the samples in measured rows; None when the figures that hold them were not run."""
    found = {key: value for row in rows for key, value in row.values.items()}
    if "peer_samples" not in found or "our_samples" not in found:
        return None
    return Samples(found["peer_samples"], found["our_samples"])


def draw(samples: Samples) -> str:
    """Return the chart as an SVG document."""
    last_step, last_bytes = samples.peer[-1]
    steps = [last_step + (samples.steps - last_step) * part / 60 for part in range(61)]
    extrapolated = [(step, last_bytes * (step / last_step) ** 2) for step in steps]
    content = [(step, step * _MESSAGE_BYTES) for step, _ in samples.ours]
    scale = _Scale(samples.steps)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"',
        f' viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="title desc">',
        '<title id="title">Stored bytes over the steps of a conversation</title>',
        f'<desc id="desc">{_description(samples, extrapolated)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="10"/>',
        _text(24, 36, "What a growing conversation takes on disk", "title"),
        _text(
            24,
            58,
            "SQLite file, one message of 1 KB added and saved at each step; logarithmic scale",
        ),
        *_grid(scale),
        scale.line(content, "content"),
        scale.line(samples.peer, "peer"),
        scale.line(extrapolated, "peer dashed"),
        scale.line(samples.ours, "ours"),
        scale.dot(samples.peer[-1], "peer"),
        *scale.label(extrapolated[-1], "peer", "LangGraph SqliteSaver", "extrapolated", 0),
        *scale.label(samples.ours[-1], "ours", "Holdfast", "", -8),
        *scale.label(content[-1], "content", "the messages", "", 14),
        _peer_remark(scale, samples.peer[-1]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    """Where a step and a number of bytes lie in the picture."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def x(self, step: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * step / self.steps

    def y(self, size: float) -> float:
        part = math.log(max(size, _LOWEST) / _LOWEST) / math.log(_HIGHEST / _LOWEST)
        return _BOTTOM - (_BOTTOM - _TOP) * part

    def line(self, points: Sequence[Point], kind: str) -> str:
        path = " ".join(f"{self.x(step):.1f},{self.y(size):.1f}" for step, size in points)
        return f'<polyline class="line {kind}" points="{path}"/>'

    def dot(self, point: Point, kind: str) -> str:
        return f'<circle class="dot {kind}" cx="{self.x(point[0]):.1f}" cy="{self.y(point[1]):.1f}" r="4"/>'

    def label(self, point: Point, kind: str, name: str, remark: str, shift: float) -> list[str]:
        y = self.y(point[1]) + shift
        size = show_bytes(point[1]) + (f", {remark}" if remark else "")
        return [
            self.dot(point, kind),
            _text(_RIGHT + 12, y, name, f"name {kind}"),
            _text(_RIGHT + 12, y + 16, size),
        ]


def _grid(scale: _Scale) -> list[str]:
    parts = []
    for size, words in _DECADES.items():
        y = scale.y(size)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 10, y + 4, words, anchor="end"))
    for quarter in range(5):
        step = scale.steps * quarter // 4
        x = scale.x(step)
        parts.append(
            f'<line class="axis" x1="{x:.1f}" y1="{_BOTTOM}" x2="{x:.1f}" y2="{_BOTTOM + 5}"/>'
        )
        parts.append(_text(x, _BOTTOM + 21, f"{step:,}", anchor="middle"))
    parts.append(f'<line class="axis" x1="{_LEFT}" y1="{_BOTTOM}" x2="{_RIGHT}" y2="{_BOTTOM}"/>')
    parts.append(_text((_LEFT + _RIGHT) / 2, _BOTTOM + 42, "steps", anchor="middle"))
    return parts


def _peer_remark(scale: _Scale, point: Point) -> str:
    words = f"{show_bytes(point[1])} after {point[0]:,} steps"
    return _text(scale.x(point[0]) + 10, scale.y(point[1]) + 18, words)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    attributes = (f' class="{kind}"' if kind else "") + (
        f' text-anchor="{anchor}"' if anchor else ""
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{words}</text>'


def _description(samples: Samples, extrapolated: Sequence[Point]) -> str:
    return (
        f"LangGraph's SqliteSaver: {show_bytes(samples.peer[-1][1])} after {samples.peer[-1][0]:,} steps,"
        f" {show_bytes(extrapolated[-1][1])} extrapolated to {samples.steps:,}."
        f" Holdfast: {show_bytes(samples.ours[-1][1])} after {samples.steps:,} steps."
    )


def write(samples: Samples, path: Path = CHART) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(samples))


if __name__ == "__main__":
    stored = json.loads(LATEST.read_text())["rows"]
    latest = collect(Row(**row) for row in stored)
    if latest is not None:
        write(latest)
