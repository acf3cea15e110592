"""While a row is sealed again it belongs to the rotation: an update waits, and nothing of it is lost."""

from __future__ import annotations

import threading

from holdfast.crypto import KeyRing
from holdfast.errors import IntegrityError
from holdfast.stores import open_store
from holdfast.stores.sealed import SealedStore
from holdfast.stores.sealed_tables import SESSIONS, Resealing, Row
from holdfast.testing.drafts import session

# Far longer than an update takes that nothing holds up.
SECONDS = 1.0


def test_an_update_beside_a_rotation_is_not_lost(url: str, ring: KeyRing) -> None:
    both = ring.rotated()
    behind = KeyRing({id_: both.keys[id_] for id_ in reversed(both.keys)}, both.names)
    with open_store(url, keys=both) as rotating, open_store(url, keys=behind) as working:
        assert isinstance(rotating, SealedStore)
        owner = working.create_session(session(task_description="before", metadata={"n": 1}))
        seal_again = Resealing(rotating.rows).change(SESSIONS)
        updated = threading.Event()

        def update() -> None:
            working.update_session(owner.id, task_description="after", merge_metadata={"n": 2})
            updated.set()

        worker = threading.Thread(target=update)

        def change(row: Row, altered: IntegrityError | None = None) -> Row | None:
            # The row was read, and is not written yet.
            worker.start()
            updated.wait(SECONDS)
            return seal_again(row, altered)

        _, changed = rotating.reseal(SESSIONS, change, after=(), limit=1)
        worker.join()
        assert changed == 1
        found = rotating.find_session(owner.id)
        assert found is not None
        assert (found.task_description, found.metadata) == ("after", {"n": 2})
