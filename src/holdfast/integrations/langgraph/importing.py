"""Bringing threads over from LangGraph's own checkpointers.

Checkpoints keep their ids, parents, metadata and writes, and are put in the order of their ids, which grow
with time. What a checkpoint's tasks wrote is stored before the checkpoint: where that is, all of it is. So an
import that was stopped is simply repeated, and stores what is missing: of each namespace what comes after the
newest one that is here. What is missing before that has been pruned here, and on top it would be the latest.

A thread that has gone on in the target since it was imported is left alone: what the source added
meanwhile would become its latest. It has gone on where there is a checkpoint that the source does not have, or a
write that no import has brought. One such write is enough: an answer that was given here counts, though its
task asks the next question at the same checkpoint. What an import brings bears a mark, for errors, questions and
answers are replaced by later ones of their task, on both sides, and their values do not say on which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph.checkpoint.base import WRITES_IDX_MAP

from holdfast.errors import InputError, IntegrityError
from holdfast.integrations.langgraph.peer_values import PeerValues
from holdfast.integrations.langgraph.places import config_of
from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.langgraph.sources import PeerCheckpoint, Source, open_source
from holdfast.model import CheckpointQuery, Payload, WritePlace
from holdfast.state import outline_state

Progress = Callable[[int, int], None]

# What a write that was brought holds beside its value.
_BROUGHT: Final = "brought"
# So many checkpoints are asked for their writes at once.
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class RefusedThread:
    """A thread that could not be brought, or not to its end, and the error that says why."""

    thread_id: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did.

    ``present`` counts the checkpoints that were here already, also those that have been pruned since.
    ``diverged`` names the threads that have gone on here and were left alone, ``refused`` those that
    could not be brought. ``threads`` counts the others.
    """

    threads: int
    checkpoints: int
    present: int
    writes: int
    diverged: tuple[str, ...]
    refused: tuple[RefusedThread, ...] = ()


def import_threads(
    url: str | Path, saver: HoldfastSaver, *, progress: Progress | None = None
) -> ImportReport:
    """Bring all threads of a SqliteSaver's file or a PostgresSaver's database into a saver.

    The source is only read. Repeating it stores what is missing. A thread with an object of a class
    that the saver does not allow, or with a value that is damaged, encrypted or pickled, is among the
    report's ``refused``, with channel and path where they are known, and the others are brought. What
    came before in it stays, and repeating the import goes on from there once the class is among the
    saver's ``types``.
    """
    with open_source(url, PeerValues(saver.classes)) as source:
        return _Import(source, saver, progress).run()


class _Import:
    """One import, with its counts."""

    def __init__(self, source: Source, saver: HoldfastSaver, progress: Progress | None) -> None:
        self.source = source
        self.saver = saver
        self.progress = progress
        self.checkpoints = self.present = self.writes = 0
        self.diverged: list[str] = []
        self.refused: list[RefusedThread] = []

    def run(self) -> ImportReport:
        threads = self.source.threads()
        total, done = sum(threads.values()), 0
        for thread_id, count in threads.items():
            try:
                self.thread(thread_id, done, total)
            except (InputError, IntegrityError) as error:
                # It is about this thread alone; what is wrong with a whole store ends the import.
                self.refused.append(RefusedThread(thread_id, error.code, str(error)))
            done += count
            self.report(done, total)
        return ImportReport(
            len(threads) - len(self.diverged) - len(self.refused),
            self.checkpoints,
            self.present,
            self.writes,
            tuple(self.diverged),
            tuple(self.refused),
        )

    def report(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)

    def thread(self, thread_id: str, done: int, total: int) -> None:
        theirs = self.source.ids(thread_id)
        records = self.saver.store.list_checkpoints(CheckpointQuery(session_id=thread_id))
        ours = {(one.namespace, one.external_id or one.id) for one in records}
        if ours - set(theirs) or self.was_written_here([(thread_id, *one) for one in ours]):
            self.diverged.append(thread_id)
            return
        # In the order of their ids: the last of each namespace stays.
        newest = dict(sorted(ours))
        for number, (namespace, checkpoint_id) in enumerate(theirs):
            here = (namespace, checkpoint_id) in ours
            missing = namespace not in newest or checkpoint_id > newest[namespace]
            if here or missing:
                found = self.source.read(thread_id, namespace, checkpoint_id)
                self.put_writes(thread_id, found)
            if missing:
                self.put(thread_id, found)
            else:
                self.present += 1
            self.report(done + number, total)

    def put(self, thread_id: str, found: PeerCheckpoint) -> None:
        config = config_of(thread_id, found.namespace, found.parent_id or "")
        checkpoint: Any = {**found.checkpoint, "id": found.checkpoint_id}
        metadata: Any = found.metadata
        self.saver.put(config, checkpoint, metadata, {})
        self.checkpoints += 1

    def was_written_here(self, places: Sequence[WritePlace]) -> bool:
        """Tell whether there is a write at one of these checkpoints that no import has brought."""
        store = self.saver.store
        return any(
            _BROUGHT not in outline_state(one.payload, store.read_chunks, cache=store.cache).state
            for start in range(0, len(places), _PAGE)
            for writes in store.read_writes(places[start : start + _PAGE]).values()
            for one in writes
        )

    def put_writes(self, thread_id: str, found: PeerCheckpoint) -> None:
        stored = self.saver.store.list_writes(thread_id, found.namespace, [found.checkpoint_id])
        present = {(one.task_id, one.index): one.payload for one in stored}
        drafts = []
        for one in found.writes:
            before = present.get((one.task_id, one.idx))
            if before is None or one.channel in WRITES_IDX_MAP:
                place = (thread_id, one.task_id, one.task_path, one.idx, one.channel)
                draft = self.saver.write_draft(*place, one.value, beside={_BROUGHT: True})
                if Payload(draft.manifest, draft.refs) != before:
                    drafts.append(draft)
        if drafts:
            self.saver.put_drafts(thread_id, found.namespace, found.checkpoint_id, drafts)
            self.writes += len(drafts)
