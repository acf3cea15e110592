"""The contract of logs: lines that are only ever added."""

from __future__ import annotations

import pytest

from holdfast.errors import InputError, InvalidFilter, SessionNotFound
from holdfast.stores.base import Store
from holdfast.testing.drafts import Contract, session


class LogContract(Contract):
    """What was said of a session, in the order of the calls."""

    def test_logs_are_in_the_order_of_the_calls(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        other = store.create_session(session())
        lines = []
        for number, level in enumerate(("debug", "info", "warning", "error")):
            lines.append(store.append_log(draft.id, level, f"line {number}", {"n": number}))
            store.append_log(other.id, "info", "elsewhere")
        assert store.list_logs(draft.id) == lines
        assert sorted(lines, key=lambda line: line.id) == lines
        assert [line.data for line in lines] == [{"n": number} for number in range(4)]

    def test_logs_can_be_paged_and_filtered_by_level(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        for number in range(5):
            store.append_log(draft.id, "info" if number % 2 else "error", str(number))

        def messages(**options: object) -> list[str]:
            return [line.message for line in store.list_logs(draft.id, **options)]  # type: ignore[arg-type]

        assert messages(limit=2) == ["0", "1"]
        assert messages(limit=2, offset=2) == ["2", "3"]
        assert messages(offset=4) == ["4"]
        assert messages(limit=0) == []
        assert messages(level="info") == ["1", "3"]
        assert messages(level="error", limit=1, offset=1) == ["2"]
        assert messages(newest=True, limit=2, offset=1) == ["3", "2"]
        with pytest.raises(InvalidFilter):
            messages(limit=-1)
        with pytest.raises(InvalidFilter):
            messages(offset=-1)
        for level in ("warn", "", 5):
            with pytest.raises(InvalidFilter, match="level must be one of"):
                messages(level=level)

    def test_logs_can_be_found_by_a_key_of_their_data(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        odd = 'a "quoted" $.key'
        for data in (None, {"decision": {"text": "x"}}, {"other": "decision"}, {odd: None}, {}):
            store.append_log(draft.id, "info", str(data), data)
        assert [line.data for line in store.list_logs(draft.id, key="decision")] == [
            {"decision": {"text": "x"}}
        ]
        assert [line.data for line in store.list_logs(draft.id, key=odd)] == [{odd: None}]
        assert store.list_logs(draft.id, key="text") == []
        assert store.list_logs(draft.id, key="decision", level="error") == []
        with pytest.raises(InvalidFilter):
            store.list_logs(draft.id, key=1)  # type: ignore[arg-type]

    def test_a_log_line_needs_a_session_and_a_known_level(self, store: Store) -> None:
        draft = session()
        store.create_session(draft)
        with pytest.raises(SessionNotFound):
            store.append_log("nobody", "info", "hello")
        with pytest.raises(InputError):
            store.append_log(draft.id, "shout", "hello")
        assert store.list_logs(draft.id) == []
