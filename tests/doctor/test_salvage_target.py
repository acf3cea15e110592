"""Where a salvage writes to: a place that cannot be written is refused, and said so."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from holdfast.doctor import salvage
from holdfast.errors import StoreReadOnly, StoreUnavailable
from tests.doctor.test_salvage import fill
from tests.stores.test_sqlite_file import in_child


@pytest.mark.parametrize("inside", ["new.db", "deeper/new.db"])
def test_a_target_below_a_file_is_refused(tmp_path: Path, inside: str) -> None:
    fill(tmp_path / "damaged.db")
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match=r"cannot be made: .*Nothing was changed"):
        salvage(tmp_path / "damaged.db", tmp_path / "file" / inside)


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs POSIX users")
@pytest.mark.parametrize("inside", ["new.db", "deeper/new.db"])
def test_a_target_that_may_not_be_written_is_refused(inside: str) -> None:
    def salvage_as_a_stranger() -> None:
        if os.getuid() == 0:
            os.setuid(65534)
        with pytest.raises(StoreReadOnly, match="check the permissions"):
            salvage(folder / "damaged.db", folder / inside)

    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        fill(folder / "damaged.db")
        (folder / "damaged.db").chmod(0o444)
        folder.chmod(0o555)
        try:
            in_child(salvage_as_a_stranger)
        finally:
            folder.chmod(0o755)
