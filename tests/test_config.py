"""Settings and where a project begins."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    PostgresCheckpointSaver,
    SessionManager,
    SQLiteCheckpointer,
    SQLiteCheckpointSaver,
)
from holdfast.config import find_project_root, load_config, without_password
from holdfast.conversations import Conversations
from holdfast.errors import InputError, InvalidConfiguration, InvalidUrl
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.savers import open_saver
from holdfast.stores import file_of, open_store


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.delenv("HOLDFAST_TENANT", raising=False)


def write_settings(root: Path, text: str) -> None:
    (root / ".agents").mkdir(exist_ok=True)
    (root / ".agents" / "holdfast.toml").write_text(text, encoding="utf-8")


@pytest.mark.row("S1-16")
def test_the_database_is_made_under_the_project_root_from_any_subdirectory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    deep = tmp_path / "src" / "a b" / "ü"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    with SessionManager.open() as manager:
        manager.create_session("a")
    database = tmp_path / ".agents" / "sessions.db"
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    with SessionManager.open(project_dir=tmp_path) as manager:
        assert len(manager.list_sessions()) == 1


def test_a_database_marks_the_root_where_there_is_no_repository(tmp_path: Path) -> None:
    below = tmp_path / "one" / "two"
    below.mkdir(parents=True)
    assert find_project_root(below) == below
    SessionManager.open(project_dir=tmp_path).close()
    assert find_project_root(below) == tmp_path


def test_a_project_named_from_within_another_is_that_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there/below", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("here", "there"):
        (tmp_path / name / ".git").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there" / "below")
    monkeypatch.chdir(tmp_path / "here")
    assert find_project_root("../elsewhere") == (tmp_path / "elsewhere").resolve()
    assert find_project_root("../there/below") == (tmp_path / "there").resolve()
    assert find_project_root("link/..") == (tmp_path / "there").resolve()


def test_arguments_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    write_settings(tmp_path, 'url = "from-file.db"\ntenant = "file"\n[retention]\nautomatic = 9\n')
    config = load_config(tmp_path / "sub")
    assert config.url == str(tmp_path / "from-file.db")
    assert (config.tenant, config.retention) == ("file", {"automatic": 9})
    monkeypatch.setenv("HOLDFAST_URL", "memory:")
    monkeypatch.setenv("HOLDFAST_TENANT", "env")
    assert (load_config(tmp_path).url, load_config(tmp_path).tenant) == ("memory:", "env")
    chosen = load_config(tmp_path, url="mine.db", tenant="me")
    assert (chosen.url, chosen.tenant) == ("mine.db", "me")


def test_the_projects_own_numbers_are_used(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write_settings(tmp_path, 'url = "memory:"\n[retention]\nautomatic = 2\n')
    with SessionManager.open(project_dir=tmp_path, workspace=False) as manager:
        session = manager.create_session("a")
        for _ in range(4):
            session.save_checkpoint(state={}, retention_class="automatic")
        assert len(session.list_checkpoints()) == 2


@pytest.mark.parametrize(
    "text",
    ["url = ", "nonsense = 1", "retention = 3", "[retention]\nautomatic = 0", "url = 5",
     "[retention]\nsteps = 4"],
)  # fmt: skip
def test_a_bad_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").mkdir()
    write_settings(tmp_path, text)
    with pytest.raises(InvalidConfiguration, match=r"holdfast\.toml"):
        load_config(tmp_path)


@pytest.mark.row("S2-24")
@pytest.mark.parametrize(
    "url", ["", "mysql://x/y", "sqlite://relative.db", "redis://", ":memory:", "file:x.db"]
)
def test_a_url_of_no_known_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        open_store(url)


class Named(os.PathLike[Any]):
    """A path that is no `Path`."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def __fspath__(self) -> Any:
        return os.fspath(self.name)


@pytest.mark.parametrize(
    "no_url",
    [None, 42, b"agent.db", ["agent.db"], Named(b"agent.db")],
    ids=["none", "number", "bytes", "list", "path of bytes"],
)
@pytest.mark.parametrize(
    "open_it",
    [
        open_store,
        file_of,
        HoldfastSaver,
        open_saver,
        SQLiteCheckpointSaver,
        PostgresCheckpointSaver,
        SQLiteCheckpointer,
        lambda given: Conversations(given, "chat"),
        # None is the store of the project here.
        lambda given: SessionManager.open([given]),  # type: ignore[arg-type]
    ],
    ids=[
        *("store", "file", "langgraph", "saver", "file saver", "server saver", "checkpointer"),
        "chat",
        "manager",
    ],
)
def test_what_names_no_store_opens_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_it: Any, no_url: Any
) -> None:
    """``os.environ.get("NOT_SET")`` is no store called None."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidUrl, match="a path, sqlite:///"):
        open_it(no_url)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_named_by_anything_that_is_a_path(tmp_path: Path) -> None:
    with open_store(Named(tmp_path / "a.db")):  # type: ignore[arg-type]
        assert (tmp_path / "a.db").exists()


@pytest.mark.row("S2-24")
def test_a_sqlite_url_is_a_path(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/a%20b.db?tenant=t") as store:
        assert store.tenant == "t"
    assert (tmp_path / "a b.db").exists()


def test_a_project_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="does not exist"):
        load_config(tmp_path / "nowhere")


def test_settings_alone_mark_a_project(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write_settings(tmp_path, 'url = "sqlite:///data/s.db"\n')
    config = load_config(tmp_path / "sub")
    assert config.project_dir == tmp_path
    assert config.url == f"sqlite:///{tmp_path / 'data' / 's.db'}"


@pytest.mark.parametrize("given", [{"url": ""}, {"tenant": ""}])
def test_what_is_given_empty_is_refused(tmp_path: Path, given: dict[str, str]) -> None:
    with pytest.raises(InvalidConfiguration, match="is empty; name one, or leave it out"):
        load_config(tmp_path, **given)
    with pytest.raises(InputError):
        open_store(given.get("url", tmp_path / "x.db"), tenant=given.get("tenant"))
    assert not (tmp_path / "x.db").exists()


def test_a_tenant_that_is_asked_for_wins_over_the_urls_own(
    tmp_path: Path, postgres_url: str
) -> None:
    for url in (f"sqlite:///{tmp_path}/s.db?tenant=acme", f"{postgres_url}&tenant=acme"):
        for asked, tenant in ((None, "acme"), ("other", "other"), ("default", "default")):
            with SessionManager.open(url, tenant=asked, workspace=False) as manager:
                assert manager.store.tenant == tenant


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/a/b.db", "/a/b.db"),
        ("memory:", "memory:"),
        ("postgresql://db/x", "postgresql://db/x"),
        ("postgresql://me:hunter2@db/x", "postgresql://me@db/x"),
        ("postgresql://me:hunter@2@db:5/x?a=1", "postgresql://me@db:5/x?a=1"),
        (
            "postgresql://db/x?password=hunter2&host=elsewhere&%70assword=hunter2&oauth_client_secret=no",
            "postgresql://db/x?host=elsewhere",
        ),
        ("postgresql://db/x?password=hunter2", "postgresql://db/x"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_settings_that_take_too_long_to_read_are_refused(tmp_path: Path) -> None:
    write_settings(tmp_path, "a." * 500_000 + "b = 1\n")
    with pytest.raises(InvalidConfiguration, match="too large"):
        load_config(tmp_path)
    write_settings(tmp_path, "# a comment\n" * 5000)
    load_config(tmp_path)
