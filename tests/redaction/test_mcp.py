"""What an agent saves through the Model Context Protocol goes without its secrets, too."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from holdfast.integrations.mcp.place import Place
from tests.redaction import corpus
from tests.redaction.test_sessions import found_on_disk


def test_a_server_saves_and_answers_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = corpus.TOKENS["github-token"][0](Random(1))
    url = f"sqlite:///{tmp_path}/.agents/sessions.db?compress=off"
    place = Place(url=url, project_dir=tmp_path)
    monkeypatch.setenv("TOKEN_OF_THE_SERVER", token)
    with place.writing(None, create=True) as (_, session):
        session.save_checkpoint("first", state={"t": token})
        assert token not in str(session.state)
    assert found_on_disk(tmp_path / ".agents", {"token": token}) == []
