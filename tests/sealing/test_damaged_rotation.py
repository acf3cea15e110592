"""Rows that no key opens: a rotation leaves them as they are, names them, and does all the others."""

from typing import NamedTuple

import pytest

from holdfast.crypto import KeyRing
from holdfast.errors import IntegrityError, PlaintextRefused, SealBroken, StateCorrupt
from holdfast.rotation import count_keys, rotate
from holdfast.stores import open_store
from holdfast.testing.drafts import session
from tests.sealing.test_rotation import fill, past_holdfast

ONE_LINE = "id = (SELECT min(id) FROM SCHEMA.session_logs)"


class Damage(NamedTuple):
    """What somebody did to one row, how it is refused, and whether something of it still opens."""

    statement: str
    table: str
    error: type[IntegrityError]
    opens_in_part: bool = False


DAMAGES = {
    "a changed line of a log": Damage(
        "UPDATE SCHEMA.session_logs SET "
        f"message = substr(message, 1, length(message) - 8) || 'AAAAAAAA' WHERE {ONE_LINE}",
        "session_logs",
        SealBroken,
    ),
    "a planted line": Damage(
        "INSERT INTO SCHEMA.session_logs (tenant, session_id, level, message) "
        "SELECT tenant, session_id, level, 'plain' FROM SCHEMA.session_logs LIMIT 1",
        "session_logs",
        PlaintextRefused,
    ),
    "planted data": Damage(
        f"""UPDATE SCHEMA.session_logs SET data = '{{"d": 1}}' WHERE {ONE_LINE}""",
        "session_logs",
        PlaintextRefused,
        opens_in_part=True,
    ),
    "a result that was cut": Damage(
        """UPDATE SCHEMA.effects SET result = '{"sealed":"sealed:AQ=="}'""", "effects", SealBroken
    ),
    "a pack of plain text": Damage(
        "UPDATE SCHEMA.workspace_packs SET data = CAST('PACK' AS {bytes})",
        "workspace_packs",
        PlaintextRefused,
    ),
    "metadata that are none": Damage(
        "UPDATE SCHEMA.sessions SET metadata = '[]' WHERE status = 'paused'",
        "sessions",
        StateCorrupt,
        opens_in_part=True,
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_row_is_named_and_all_others_are_done(url: str, ring: KeyRing, what: str) -> None:
    damage = DAMAGES[what]
    fill(url, ring)
    kind = "bytea" if url.startswith("postgresql") else "blob"
    past_holdfast(url, damage.statement.replace("{bytes}", kind))
    both = ring.rotated()
    with open_store(url, keys=both) as store:
        before = count_keys(store)
        report = rotate(store)
        after = count_keys(store)
        assert before.damaged == report.damaged == after.damaged
        [found] = report.damaged
        assert (found.table, found.code) == (damage.table, damage.error.code)
        assert found.what.startswith(f"{damage.table} ")
        assert report.changed > 10
        assert not after.ok
        # An old key is needed for what it opens, and not for what nothing opens.
        assert (after.old_values > 0) is damage.opens_in_part
        assert rotate(store).changed == 0
    with open_store(url, keys=both.only(set())) as store:
        assert all(store.load(id_) for id_ in store.iter_checkpoint_ids())


def test_a_value_whose_key_is_missing_waits_for_it(url: str, ring: KeyRing) -> None:
    fill(url, ring)
    foreign, both = ring.rotated(), ring.rotated()
    with open_store(url, keys=foreign) as store:
        late = store.create_session(session(task_description="by a key that is missing then"))
    with open_store(url, keys=both) as store:
        report = rotate(store)
        assert report.changed > 10
        assert (report.damaged, report.ok) == ((), False)
        assert report.missing.keys() == {foreign.current}
        assert count_keys(store).values.keys() == {foreign.current, both.current}
    brought = KeyRing({**both.keys, **foreign.keys}, ring.names)
    with open_store(url, keys=brought) as store:
        assert rotate(store).changed == 1
        assert count_keys(store).ok
    with open_store(url, keys=both.only(set())) as store:
        assert store.find_session(late.id) == late
