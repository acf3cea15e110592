"""What every part of a PostgreSQL store works with: its connections, and named queries."""

from __future__ import annotations

from typing import Any

from holdfast.stores.base import Store
from holdfast.stores.postgres_connection import Link
from holdfast.stores.postgres_statements import Statement, forget_sessions


class PostgresAccess(Store):
    """A store of one tenant in one schema."""

    schema: str
    _link: Link
    _sql: dict[str, str]

    def _rows(self, name: str, *, again: bool = False, **params: Any) -> list[tuple[Any, ...]]:
        statement = Statement(self._sql[name], {"tenant": self.tenant, **params})
        return self._link.rows(statement, again=again)

    def _erase(self, name: str, *, again: bool = False, **params: Any) -> list[tuple[Any, ...]]:
        """Ask what erases something: this process remembers nothing of it either."""
        with self._forgetting():
            forget_sessions()
            return self._rows(name, again=again, **params)
