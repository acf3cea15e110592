"""The acceptance rows: every requirement, with the id that a test's marker names."""

from pathlib import Path

ROWS_FILE = Path(__file__).with_name("rows.tsv")


def load_rows(path: Path = ROWS_FILE) -> dict[str, str]:
    """Read the requirement of each row id, in the order of the file."""
    rows: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        row_id, requirement = line.split("\t")
        if row_id in rows:
            raise ValueError(f"row {row_id} is in {path.name} twice")
        rows[row_id] = requirement
    return rows
