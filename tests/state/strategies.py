"""Hypothesis strategies for states: every kind that round-trips, small and large, nested."""

from __future__ import annotations

import os
from datetime import timedelta, timezone
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from holdfast.state.encoder import INLINE_BYTES

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        ["$t", "v", "\0", "a\0b", "ref", '"$t"', "é", "e\u0301", "😀", "\u2028", "\x7f"]
    ),
)
large_texts = st.builds(
    lambda text, times: (text + "·") * times,
    texts,
    st.integers(INLINE_BYTES // 2, 3 * INLINE_BYTES),
)
integers = st.one_of(
    st.integers(),
    st.sampled_from(
        [-(1 << 63) - 1, -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -(10**400)]
    ),
)
floats = st.one_of(
    st.floats(),
    st.sampled_from([-0.0, 0.0, 1e15, 1e16, 5e-324, float("nan"), float("inf"), float("-inf")]),
)
zones = st.one_of(
    st.none(),
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("UTC"), ZoneInfo("Asia/Kathmandu")]),
    st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds))),
)


def _folded(moment: Any, fold: bool) -> Any:
    return moment.replace(fold=int(fold))


paths = st.one_of(
    texts.map(Path),
    st.binary(max_size=8).map(lambda name: Path(os.fsdecode(name))),
    texts.map(PurePosixPath),
    texts.map(PureWindowsPath),
)
hashable_scalars = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    floats,
    texts,
    st.binary(max_size=20),
    st.builds(_folded, st.datetimes(timezones=zones), st.booleans()),
    st.dates(),
    st.builds(_folded, st.times(timezones=zones), st.booleans()),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False),
    paths,
)
hashables = st.recursive(
    hashable_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)
    ),
    max_leaves=4,
)
scalars = st.one_of(
    hashable_scalars, large_texts, st.binary(min_size=INLINE_BYTES, max_size=2 * INLINE_BYTES)
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts, inner, max_size=5),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
    ),
    max_leaves=8,
)


def _repeated(item: Any, times: int) -> list[Any]:
    return [item] * times


states: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    texts, st.one_of(values, st.builds(_repeated, values, st.integers(1, 20))), max_size=5
)

json_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.sampled_from(["😀" * 200, '"\\\n\t\x01' * 150, "é" * 600, "/</script>"]),
)
json_keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0$"), max_size=9)
json_values: st.SearchStrategy[Any] = st.recursive(
    json_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(json_keys, inner, max_size=5),
    ),
    max_leaves=8,
)
json_states: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    json_keys,
    st.one_of(json_values, st.builds(_repeated, json_values, st.integers(1, 40))),
    max_size=6,
)
