"""Which effects a session had when a run began: looked up once, and added to as the run goes on."""

from __future__ import annotations

from holdfast.effects.call import key_mark
from holdfast.errors import EffectUnrecognised
from holdfast.model import EffectQuery, EffectRecord, NewEffect
from holdfast.stores.base import Store


class Recorded:
    """The effects that one run may meet. It reads the store when it is first asked."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._places: set[tuple[str, int]] | None = None
        self._key_marks: dict[str, set[bytes]] = {}

    def find(self, draft: NewEffect) -> EffectRecord | None:
        """Return what is recorded in the place of a draft, if anything is."""
        if (draft.key, draft.occurrence) not in self._read():
            return None
        query = EffectQuery(self._session_id, key=draft.key, occurrence=draft.occurrence)
        return next(iter(self._store.list_effects(query)), None)

    def check_key_mark(self, name: str, mark: bytes) -> None:
        """Refuse a step that may be recorded under a name that another redaction key has given it."""
        self._read()
        if self._key_marks.get(name, set()) - {mark}:
            raise unrecognised(f"steps called {name!r} are recorded")

    def add(self, draft: NewEffect) -> None:
        """Let a later use in this run, which may be the same effect, look for its record."""
        if self._places is not None:
            self._places.add((draft.key, draft.occurrence))

    def _read(self) -> set[tuple[str, int]]:
        places = self._places
        if places is None:
            known = self._store.list_effects(EffectQuery(self._session_id))
            marks: dict[str, set[bytes]] = {}
            for one in known:
                mark = key_mark(one.fingerprint)
                # What was given a key is found by that, whatever its arguments look like.
                if mark and one.key.rpartition("#")[0] == one.name:
                    marks.setdefault(one.name, set()).add(mark)
            self._key_marks = marks
            self._places = places = {(one.key, one.occurrence) for one in known}
        return places


def unrecognised(what: str) -> EffectUnrecognised:
    """Return the error of a step that cannot be told from recorded ones."""
    return EffectUnrecognised(
        f"{what} with secrets among the arguments, taken out with another redaction key: whether this "
        f"is one of them cannot be told, so nothing was run. Bring that key here (.agents/redaction.key, "
        f"or HOLDFAST_REDACTION_KEY); what surely is another step can have a key= of its own"
    )
