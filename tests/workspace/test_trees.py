"""A snapshot that no capture can have made is refused before anything is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.errors import SnapshotCorrupt
from holdfast.workspace.private_store import PrivateStore


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_text("one")
    return Workspace(root)


def forged(workspace: Workspace, *entries: tuple[bytes, bytes], inside: bytes | None = None) -> str:
    """Return a commit whose tree, or whose directory ``inside``, is made of these entries."""
    git = PrivateStore(workspace.root, workspace.store_dir).git
    first = workspace.snapshot()
    message = git.run("cat-file", "commit", first.commit).partition(b"\n\n")[2]

    def write(kind: str, data: bytes) -> bytes:
        arguments = ("hash-object", "-w", "--literally", "-t", kind, "--stdin")
        return git.run(*arguments, stdin=data).strip()

    blob = write("blob", b"forged")
    empty = write("tree", b"")

    def entry(mode: bytes, name: bytes) -> bytes:
        target = empty if mode == b"40000" else blob
        return mode + b" " + name + b"\0" + bytes.fromhex(target.decode())

    tree = write("tree", b"".join(entry(*one) for one in entries))
    if inside is not None:
        tree = write("tree", b"40000 " + inside + b"\0" + bytes.fromhex(tree.decode()))
    head = b"tree " + tree + b"\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\n"
    return write("commit", head + message).decode()


HOSTILE: dict[str, tuple[tuple[bytes, bytes], ...]] = {
    "a slash": ((b"100644", b"a/../../b"),),
    "a name twice": ((b"120000", b"a"), (b"100644", b"a.b"), (b"40000", b"a")),
    "another order": ((b"100644", b"b"), (b"100644", b"a")),
    "an unknown mode": ((b"100666", b"a"),),
}


@pytest.mark.parametrize("inside", [None, b"deep"], ids=["top", "below"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_tree_is_refused(workspace: Workspace, kind: str, inside: bytes | None) -> None:
    commit = forged(workspace, *HOSTILE[kind], inside=inside)
    with pytest.raises(SnapshotCorrupt):
        workspace.restore(commit)
    assert (workspace.root / "src" / "a.txt").read_text() == "one"
    assert sorted(one.name for one in workspace.root.iterdir()) == [".agents", "src"]


def test_our_own_corner_is_never_written(workspace: Workspace) -> None:
    commit = forged(workspace, (b"100644", b"holdfast.toml"), inside=b".agents")
    with pytest.raises(SnapshotCorrupt, match="no snapshot may hold"):
        workspace.restore(commit)


def test_a_plain_tree_of_that_making_is_restored(workspace: Workspace) -> None:
    commit = forged(workspace, (b"100644", b"a"), (b"100755", b"a.b"), inside=b"deep")
    workspace.restore(commit)
    assert (workspace.root / "deep" / "a").read_text() == "forged"
    assert not (workspace.root / "src").exists()


def test_a_damaged_directory_stops_a_restore(workspace: Workspace) -> None:
    first = workspace.snapshot()
    (workspace.root / "src" / "a.txt").write_text("two")
    workspace.snapshot()
    store = PrivateStore(workspace.root, workspace.store_dir)
    name = store.git.run("rev-parse", f"{first.tree}:src").decode().strip()
    path = workspace.store_dir / "objects" / name[:2] / name[2:]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(SnapshotCorrupt):
        workspace.restore(first.commit)
    assert (workspace.root / "src" / "a.txt").read_text() == "two"
