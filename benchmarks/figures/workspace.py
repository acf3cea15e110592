"""What saving and restoring a project's files costs, beside git's own commands on the same files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from benchmarks.content import Writer
from benchmarks.harness import Row, Run, median, show_bytes, show_time, take_turns, timed
from benchmarks.workspace import DURABLE, Project, settle, stored_bytes
from holdfast import SessionManager
from holdfast.workspace import Workspace

STATUS = ("status", "--porcelain")
_CHANGED = 100
# Two ratios of measured times are compared.
_TOLERANCE = 1.1


def measure(run: Run) -> list[Row]:
    project = Project(run.directory / "project", run.size(20_000, 2000))
    workspace = Workspace(project.root)
    first = timed(workspace.snapshot)
    settle()
    workspace.snapshot()
    return [
        _unchanged(run, project, workspace),
        _changed(run, project, workspace),
        _told(run, project, workspace),
        _restored(run, project, workspace),
        _packed(run, workspace),
        _first(run, project, first),
        _grown(run, project, workspace),
    ]


def _row(
    figure: str, peer: str, times: tuple[float, float], limit: float, note: str, **values: Any
) -> Row:
    theirs, ours = times
    return Row(
        figure=figure,
        peer=f"{peer} {show_time(theirs)}",
        ours=show_time(ours),
        ratio=f"{ours / theirs:.2f} × its time",
        target=f"≤ {limit:g} × its time",
        met=ours <= limit * theirs,
        note=note,
        values={"peer_seconds": theirs, "our_seconds": ours, "ratio": ours / theirs, **values},
    )


def _unchanged(run: Run, project: Project, workspace: Workspace) -> Row:
    with SessionManager.open(project_dir=project.root) as manager:
        session = manager.create_session("bench")
        state = {"messages": Writer().messages(20)}
        sides = (
            lambda: project.git(*STATUS),
            workspace.snapshot,
            lambda: session.save_checkpoint(state=state),
        )
        session.save_checkpoint(state=state)
        theirs, ours, whole = map(median, take_turns(run.size(21, 5), *sides))
    return _row(
        f"workspace: a save of {len(project.files):,} files, none changed",
        "`git status`",
        (theirs, ours),
        2.5,
        f"in turn; a whole `save_checkpoint`, with a state of 20 KB, takes {show_time(whole)}",
        checkpoint_seconds=whole,
    )


def _changed(run: Run, project: Project, workspace: Workspace) -> Row:
    rounds = run.size(11, 3)
    fresh = run.directory / "fresh-index"

    def from_nothing() -> None:
        project.git(*DURABLE, "add", "-A", GIT_INDEX_FILE=str(fresh))
        project.git(*DURABLE, "write-tree", GIT_INDEX_FILE=str(fresh))
        fresh.unlink()

    sides = (lambda: project.git(*DURABLE, "stash", "create"), workspace.snapshot)
    times: tuple[list[float], ...] = ([], [])
    slow = []
    for number in range(rounds):
        project.change(_CHANGED)
        settle()
        # Who comes first reads the changed files from a colder cache, so they take turns in that.
        for side in (0, 1) if number % 2 else (1, 0):
            times[side].append(timed(sides[side]))
        if number < 3:
            project.change(_CHANGED)
            settle()
            slow.append(timed(from_nothing))
    theirs, ours, fresh_time = map(median, (*times, slow))
    return _row(
        f"workspace: a save of {len(project.files):,} files, {_CHANGED} changed",
        "`git stash create`",
        (theirs, ours),
        2,
        f"both synced alike; the peer leaves untracked files out; `git add -A` and `git write-tree` "
        f"with a fresh index, as some tools do, take {show_time(fresh_time)}",
        fresh_index_seconds=fresh_time,
    )


def _told(run: Run, project: Project, workspace: Workspace) -> Row:
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(run.size(15, 3)):
        path = project.change(1)[0]
        times[0].append(timed(lambda: project.git(*STATUS)))
        times[1].append(timed(lambda path=path: workspace.snapshot([path])))  # type: ignore[misc]
    return _row(
        f"workspace: a save of one told path among {len(project.files):,} files",
        "`git status`",
        (median(times[0]), median(times[1])),
        1,
        "the path was changed before each save",
    )


def _restored(run: Run, project: Project, workspace: Workspace) -> Row:
    saving, restoring = [], []
    for _ in range(run.size(9, 2)):
        project.change(_CHANGED)
        settle()
        saving.append(timed(workspace.snapshot))
        target = workspace.snapshot().commit
        project.change(_CHANGED)
        settle()
        restoring.append(timed(lambda target=target: workspace.restore(target)))  # type: ignore[misc]
    return _row(
        f"workspace: a restore of {_CHANGED} files among {len(project.files):,}",
        f"our save of {_CHANGED} files",
        (median(saving), median(restoring)),
        3,
        "what it overwrites was saved nowhere, so its safety snapshot is such a save too; reading "
        "what is to be written beforehand and the result afterwards is included",
    )


def _packed(run: Run, workspace: Workspace) -> Row:
    everything = workspace.snapshots()
    workspace.gc(lambda: everything)
    ours = stored_bytes(workspace.store_dir)
    peer = run.directory / "repacked"
    _bare(peer, "init", "-q", "--bare", "--template=", ".")
    _bare(peer, "fetch", "-q", str(workspace.store_dir), "refs/snapshots/*:refs/snapshots/*")
    _bare(peer, "repack", "-a", "-d", "-f", "-q")
    _bare(peer, "pack-refs", "--all")
    theirs = stored_bytes(peer)
    return Row(
        figure=f"workspace: the private store of {len(everything)} snapshots after gc",
        peer=f"`git repack -adf` of the same commits {show_bytes(theirs)}",
        ours=show_bytes(ours),
        ratio=f"{ours / theirs:.2f} × its size",
        target="≤ 1.2 × its size",
        met=ours <= 1.2 * theirs,
        note="all files of the store, its index and notes included; the peer is bare",
        values={"peer_bytes": theirs, "our_bytes": ours, "snapshots": len(everything)},
    )


def _bare(where: Path, *arguments: str) -> None:
    where.mkdir(exist_ok=True)
    subprocess.run(["git", *arguments], cwd=where, check=True, capture_output=True)


def _first(run: Run, project: Project, ours: float) -> Row:
    objects = run.directory / "objects"
    objects.mkdir()
    elsewhere = {
        "GIT_INDEX_FILE": str(run.directory / "first-index"),
        "GIT_OBJECT_DIRECTORY": str(objects),
    }

    def theirs() -> None:
        project.git(*DURABLE, "add", "-A", **elsewhere)
        project.git(*DURABLE, "write-tree", **elsewhere)

    seconds = timed(theirs)
    return Row(
        figure=f"workspace: the first save of {len(project.files):,} files",
        peer=f"`git add -A` and `git write-tree` {show_time(seconds)}",
        ours=show_time(ours),
        ratio=f"{ours / seconds:.2f} × its time",
        note="into an empty store, synced alike; once each",
        values={"peer_seconds": seconds, "our_seconds": ours},
    )


def _grown(run: Run, project: Project, workspace: Workspace) -> Row:
    large = Project(run.directory / "large", run.size(100_000, 6000), size=800)
    large_workspace = Workspace(large.root)
    # Both once for what is new, and once for git's racy second.
    for one in (workspace, large_workspace) * 2:
        one.snapshot()
        settle()
    sides = (
        lambda: project.git(*STATUS),
        workspace.snapshot,
        lambda: large.git(*STATUS),
        large_workspace.snapshot,
    )
    peer, save, large_peer, large_save = map(median, take_turns(run.size(11, 3), *sides))
    small_ratio, ratio = save / peer, large_save / large_peer
    return Row(
        figure=f"workspace: a save of {len(large.files):,} files, none changed",
        peer=f"`git status` {show_time(large_peer)}",
        ours=show_time(large_save),
        ratio=f"{ratio:.2f} × its time",
        target=f"≤ {_TOLERANCE:g} × the ratio of the smaller project",
        met=ratio <= _TOLERANCE * small_ratio,
        note=(
            f"the cost grows no faster than that of `git status`: with {len(project.files):,} files, "
            f"in turn with these, it was {small_ratio:.2f} × its time"
        ),
        values={
            "peer_seconds": large_peer,
            "our_seconds": large_save,
            "ratio": ratio,
            "small_ratio": small_ratio,
        },
    )
