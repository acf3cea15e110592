"""What others do between the plan of a removal and the removal, made to happen just then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.stores import Store


def meanwhile(store: Store, happens: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something happen once, between the plan of a removal and the removal."""
    delete, left = store.delete_checkpoints, [happens]

    def deleting(*args: Any, **options: Any) -> int:
        if "beside" in options and left:
            left.pop()()
        return delete(*args, **options)

    monkeypatch.setattr(store, "delete_checkpoints", deleting)
