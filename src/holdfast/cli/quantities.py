"""Amounts and times as people type them: ``30d``, ``500MB``, ``key=value``. Callbacks for click options."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from holdfast.model import utc_now

_AMOUNT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-zA-Z]*)")
_SPANS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZES: Final = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip


def age(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Return a span of time, longer than nothing: a number and s, m, h, d or w."""
    if value is None:
        return None
    try:
        span = timedelta(seconds=_amount(value, _SPANS))
    except OverflowError:
        span = timedelta()
    if not span:
        raise click.BadParameter(
            f"{value!r} is not an age; write for example 30d (s, m, h, d or w)", ctx, param
        )
    return span


def later(ctx: click.Context, param: click.Parameter, value: datetime | None) -> datetime | None:
    """Return a time in UTC, which is yet to come."""
    if value is None:
        return None
    moment, now = value.replace(tzinfo=UTC), utc_now()
    if moment <= now:
        raise click.BadParameter(
            f"{moment:%Y-%m-%dT%H:%M:%S} is over: in UTC it is {now:%Y-%m-%dT%H:%M:%S} now",
            ctx,
            param,
        )
    return moment


def size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a number of bytes, at least one: a number and B, KB, MB, GB, TB, KiB and so on."""
    if value is None:
        return None
    count = int(_amount(value, _SIZES))
    if not count:
        raise click.BadParameter(
            f"{value!r} is not a size; write for example 500MB (B, KB, MB, GB, KiB, MiB, …)",
            ctx,
            param,
        )
    return count


def pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """Return keys with their text, which may be empty or contain further equals signs."""
    found: dict[str, str] = {}
    for item in value:
        key, separator, text = item.partition("=")
        if not key or not separator:
            raise click.BadParameter(f"{item!r} is not KEY=TEXT", ctx, param)
        if key in found:
            raise click.BadParameter(f"the key {key!r} is given twice", ctx, param)
        found[key] = text
    return found


def _amount(text: str, units: dict[str, int]) -> float:
    found = _AMOUNT.fullmatch(text.strip())
    return float(found[1]) * units.get(found[2].lower(), 0) if found else 0.0
