"""Secrets never reach the disk, and come back when a session is resumed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.errors import (
    EffectFailed,
    EffectMismatch,
    EffectUnrecognised,
    InvalidConfiguration,
)
from holdfast.model import Payload
from holdfast.redaction import Placeholder, Redactor, placeholders_in
from holdfast.redaction.keys import FILE_NAME
from holdfast.state import StateEncoder, decode_state, outline_state
from tests.redaction import corpus
from tests.workspace.pictures import make_repository

Open = Callable[..., SessionManager]


def one_of_each_kind(seed: int = 1) -> dict[str, str]:
    dice = Random(seed)
    return {kind: makers[0](dice) for kind, makers in corpus.TOKENS.items()}


def bytes_under(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def found_on_disk(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    data = bytes_under(folder)
    # Of a key in several lines, any line gives it away.
    return [
        kind
        for kind, secret in secrets.items()
        if max(secret.split("\n"), key=len).encode() in data
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    make_repository(root)
    return root


@pytest.fixture
def opened(project: Path) -> Iterator[Open]:
    managers = []

    def manager(**options: Any) -> SessionManager:
        # Uncompressed, so that what is on the disk can be searched.
        url = f"sqlite:///{project}/.agents/sessions.db?compress=off"
        managers.append(SessionManager.open(url, project_dir=project, **options))
        return managers[-1]

    yield manager
    for one in managers:
        one.close()


def save_everywhere(manager: SessionManager, secrets: Mapping[str, str]) -> str:
    """Put every secret into everything that a session stores; return the session's id."""
    joined = " and ".join(secrets.values())
    session = manager.create_session(
        "implementer", task_description=f"use {joined}", metadata={"given": dict(secrets)}
    )
    messages = [{"role": "user", "content": f"my {kind}: {one}"} for kind, one in secrets.items()]
    state: dict[str, Any] = {
        "conversation_history": messages,
        "variable_state": {kind: {"value": one} for kind, one in secrets.items()},
        "log": "line\n" * 200 + joined,
        "raw": joined.encode(),
        "tuple": tuple(secrets.values()),
        "task_state": {"tasks": [{"id": "1", "title": joined, "status": "completed"}]},
    }
    session.save_checkpoint("first", state=state, description=joined, metadata={"x": [joined]})
    messages.append({"role": "tool", "content": joined})
    state["log"] += "\n" + joined
    session.save_checkpoint("second", state=state)
    session.log("info", joined, data={"deep": [{"text": joined}]})
    session.decision(f"use {joined}", rationale=joined, alternatives=[joined])
    session.update_metadata({"later": joined})
    assert session.step("ask", lambda given: {"answer": given}, joined) == {"answer": joined}
    with pytest.raises(RuntimeError):
        session.step("fail", fail, joined, key="fails")
    with pytest.raises(RuntimeError), session.guard("risky", state=state):
        fail(joined)
    manager.create_agent("helper", agent_type="helper", metadata={"key": joined})
    session.pause(f"waits for {joined}", state=state)
    return session.id


def fail(text: str) -> None:
    raise RuntimeError(f"cannot log in with {text}")


@pytest.mark.row("B9")
def test_no_secret_reaches_the_disk_and_no_commit_id_is_lost(opened: Open, project: Path) -> None:
    secrets = one_of_each_kind()
    commits = [corpus.some(Random(2), corpus.HEX, 40) for _ in range(100)]
    identity = "b7c1f0de-52c3-4a57-9d9b-2f5a0a1a6c11"
    manager = opened(redact=True)
    session_id = save_everywhere(manager, secrets)
    session = manager.resume_session(session_id, rehydrate=secrets.values())
    kept = {
        "commits": commits,
        "text": f"merged {commits[0]}",
        "id": identity,
        "at": "/home/me/a.py",
    }
    session.save_checkpoint("shas", state=kept)
    # With the log of the database still beside it.
    assert found_on_disk(project / ".agents", secrets) == []
    assert session.get_checkpoint("shas").state == kept
    data = bytes_under(project / ".agents")
    assert all(commit.encode() in data for commit in commits)
    # They come back where they are at hand.
    before = session.load_checkpoint("second").state
    assert [one["content"] for one in before["conversation_history"]][: len(secrets)] == [
        f"my {kind}: {one}" for kind, one in secrets.items()
    ]
    assert before["raw"] != b""


def test_without_redaction_they_would_be_there(opened: Open, project: Path) -> None:
    secrets = one_of_each_kind()
    save_everywhere(opened(), secrets)
    assert set(found_on_disk(project / ".agents", secrets)) == set(secrets)
    assert not (project / ".agents" / FILE_NAME).exists()


@pytest.mark.parametrize("backend", ["memory", "postgres"])
def test_other_databases_get_none_either(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    secrets = one_of_each_kind()
    url = "memory:" if backend == "memory" else request.getfixturevalue("postgres_url")
    with SessionManager.open(url, project_dir=tmp_path, workspace=False, redact=True) as manager:
        session_id = save_everywhere(manager, secrets)
        assert manager.find_secrets().ok
        session = manager.resume_session(session_id, rehydrate=secrets.values())
        assert session.state["tuple"] == tuple(secrets.values())
        assert session.missing_secrets() == []


def test_values_come_back_from_the_environment_on_resume(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = corpus.TOKENS["github-token"][0](Random(3))
    lost = corpus.TOKENS["gitlab-token"][0](Random(3))
    password = corpus.some(Random(3), corpus.ALNUM, 20)
    state = {"a": f"Bearer {token}", "b": {"password": password}, "c": lost, "d": [1, token]}
    first = opened(redact=True)
    session = first.create_session("implementer")
    session.save_checkpoint(state=state)
    session.close()
    monkeypatch.setenv("SOME_TOKEN", token)
    monkeypatch.setenv("DATABASE_URL", f"postgresql://app:{password}@db/app")
    again = opened(redact=True).resume_session(session.id)
    assert {**again.state, "c": lost} == state
    [missing] = again.missing_secrets()
    assert missing.kind == "gitlab-token"
    assert again.state["c"] == str(missing)
    report = again.preflight(files=False)
    assert report.codes.count("placeholder_unfilled") == 1
    assert str(missing) in again.brief().text
    # To look at a checkpoint brings nothing back.
    assert token not in str(again.latest_checkpoint().state)
    # Saved again, it is the same as before.
    before = again.latest_checkpoint()
    after = again.save_checkpoint(state=again.state)
    assert after.content.payload.refs == before.content.payload.refs
    assert after.state == before.state


def test_a_function_is_asked_for_what_it_knows(opened: Open) -> None:
    token = corpus.TOKENS["github-token"][0](Random(4))
    session = opened(redact=True).create_session("implementer")
    session.save_checkpoint(state={"token": token})
    session.close()
    asked = []

    def keychain(placeholder: Placeholder) -> str:
        asked.append(placeholder.kind)
        return "the new one"

    manager = opened(rehydrate=keychain)
    assert manager.resume_session(session.id).state == {"token": "the new one"}
    assert asked == ["github-token"]
    assert "[redacted:" in str(manager.resume_session(session.id, rehydrate=False).state)
    assert manager.resume_session(session.id, rehydrate=[token]).state == {"token": token}


@pytest.mark.parametrize("wrong", [5, "the-token-itself", b"the-token-itself", [5], object()])
def test_what_cannot_bring_secrets_back_is_refused_and_not_repeated(
    opened: Open, wrong: Any
) -> None:
    session = opened().create_session("implementer")
    session.close()
    with pytest.raises(InvalidConfiguration, match="rehydrate") as refused:
        opened(rehydrate=wrong)
    assert "the-token-itself" not in str(refused.value)
    with pytest.raises(InvalidConfiguration, match="rehydrate"):
        opened().resume_session(session.id, rehydrate=wrong)


def test_a_function_that_returns_no_text_is_refused_when_it_is_asked(opened: Open) -> None:
    token = corpus.TOKENS["github-token"][0](Random(4))
    session = opened(redact=True).create_session("implementer")
    session.save_checkpoint(state={"token": token})
    session.close()
    answering: Any = lambda placeholder: 5  # noqa: E731
    with pytest.raises(InvalidConfiguration, match=r"rehydrate returned int for \[redacted:github"):
        _ = opened().resume_session(session.id, rehydrate=answering).state


def test_a_text_of_the_users_that_looks_like_a_placeholder_comes_back(opened: Open) -> None:
    state = {"doc": "writes [redacted:github-token:0123456789abcdef] instead", "n": "[redacted:]"}
    session = opened(redact=True).create_session("implementer")
    session.save_checkpoint(state=state)
    assert session.state == state


def test_steps_are_replayed_with_their_secrets_and_found_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = corpus.TOKENS["github-token"][0](Random(5))
    calls = []

    def make(given: str) -> dict[str, Any]:
        calls.append(given)
        return {"made": given, "also": (1, 2)}

    session = opened(redact=True).create_session("implementer")
    assert session.step("make", make, token) == {"made": token, "also": (1, 2)}
    session.close()
    monkeypatch.setenv("A", token)
    again = opened(redact=True).resume_session(session.id)
    assert again.step("make", make, token) == {"made": token, "also": (1, 2)}
    assert calls == [token]
    with pytest.raises(RuntimeError):
        again.step("fails", fail, token, key="k")
    with pytest.raises(EffectFailed) as caught:
        again.step("fails", fail, token, key="k")
    assert token not in str(caught.value)


def test_of_a_long_error_no_half_of_a_secret_is_kept(opened: Open) -> None:
    token = corpus.TOKENS["github-token"][0](Random(8))
    session = opened(redact=True, workspace=False).create_session("t")
    for number, length in enumerate((65_490, 65_500, 65_510)):
        text = f"{token} {'y' * length}"
        with pytest.raises(RuntimeError, match="ghp_"):
            session.step(f"fail {number}", fail, text)
    recorded = [one.error for one in session.effects()]
    assert len(recorded) == 3
    assert all(token[-8:] not in repr(error) for error in recorded)


class TestStepsAndAnotherKey:
    """Whether a step with a secret is one that is recorded, only the key of its placeholders tells."""

    token = corpus.TOKENS["github-token"][0](Random(5))
    other = Redactor(b"another key")

    def pay(self, token: str, order: int) -> str:
        self.orders.append(order)
        return f"receipt {order}"

    @pytest.fixture(autouse=True)
    def _nothing_paid(self) -> None:
        self.orders: list[int] = []

    def test_a_step_that_may_be_recorded_is_not_run(self, opened: Open) -> None:
        session = opened(redact=True).create_session("payer")
        session.step("pay", self.pay, self.token, 7)
        session.close()
        elsewhere = opened(redact=self.other).resume_session(session.id)
        for idempotent in (False, True):
            with pytest.raises(EffectUnrecognised, match="HOLDFAST_REDACTION_KEY"):
                elsewhere.step("pay", self.pay, self.token, 7, idempotent=idempotent)
        assert self.orders == [7]
        assert len(elsewhere.effects()) == 1

    def test_what_cannot_be_recorded_runs(self, opened: Open) -> None:
        session = opened(redact=True).create_session("payer")
        session.step("pay", self.pay, self.token, 7)
        session.close()
        elsewhere = opened(redact=self.other).resume_session(session.id)
        elsewhere.step("refund", self.pay, self.token, 1)
        elsewhere.step("pay", self.pay, "no secret", 2)
        elsewhere.step("pay", self.pay, self.token, 8, key="order-8")
        elsewhere.close()
        back = opened(redact=True).resume_session(session.id)
        back.step("pay", self.pay, self.token, 7)
        back.step("pay", self.pay, self.token, 9)
        assert self.orders == [7, 1, 2, 8, 9]

    def test_a_key_of_the_step_is_not_taken_for_other_arguments(self, opened: Open) -> None:
        session = opened(redact=True).create_session("payer")
        session.step("pay", self.pay, self.token, 7, key="order-7")
        session.close()
        elsewhere = opened(redact=self.other).resume_session(session.id)
        with pytest.raises(EffectUnrecognised, match="HOLDFAST_REDACTION_KEY"):
            elsewhere.step("pay", self.pay, self.token, 7, key="order-7")
        with pytest.raises(EffectMismatch):
            elsewhere.step("pay", self.pay, "no secret", 7, key="order-7")
        assert self.orders == [7]

    def test_a_placeholder_is_the_same_argument_everywhere(self, opened: Open) -> None:
        session = opened(redact=True).create_session("payer")
        session.save_checkpoint(state={"token": self.token})
        session.step("pay", self.pay, self.token, 7)
        session.close()
        elsewhere = opened(redact=self.other, rehydrate=False).resume_session(session.id)
        assert elsewhere.step("pay", self.pay, elsewhere.state["token"], 7) == "receipt 7"
        assert self.orders == [7]


def test_a_secret_in_bytes_comes_back_or_is_missed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = corpus.TOKENS["github-token"][0](Random(7))
    state = {"raw": b"\0" + token.encode(), "path": Path(f"/srv/{token}")}
    session = opened(redact=True, workspace=False).create_session("t")
    session.save_checkpoint("saved", state=state)
    session.step("read", lambda: state["raw"])
    session.close()
    again = opened(redact=True, workspace=False).resume_session(session.id)
    assert [one.kind for one in again.missing_secrets()] == ["github-token"]
    again.close()
    monkeypatch.setenv("ANY", token)
    again = opened(redact=True, workspace=False).resume_session(session.id)
    assert again.state == state
    assert again.missing_secrets() == []
    assert again.step("read", lambda: b"") == state["raw"]


def test_a_repeated_save_with_the_same_id_is_accepted(opened: Open) -> None:
    token = corpus.TOKENS["github-token"][0](Random(6))
    session = opened(redact=True).create_session("implementer")
    saved = session.save_checkpoint("a", state={"t": token})
    again = session.save_checkpoint("a", state={"t": token}, checkpoint_id=saved.id)
    assert again.id == saved.id


def test_the_same_secret_is_stored_alike_by_everybody_who_has_the_key(opened: Open) -> None:
    token = corpus.TOKENS["github-token"][0](Random(7))
    states = []
    for _ in range(2):
        session = opened(redact=True).create_session("implementer")
        states.append(session.save_checkpoint(state={"t": token}).state)
    assert states[0] == states[1]


# The settings -------------------------------------------------------------------------------


def write_settings(project: Path, text: str) -> None:
    (project / ".agents").mkdir(exist_ok=True)
    (project / ".agents" / "holdfast.toml").write_text(text)


def stored_by(manager: SessionManager, text: str) -> str:
    session = manager.create_session("implementer")
    found = session.save_checkpoint(state={"t": text}).state["t"]
    assert isinstance(found, str)
    return found


def test_settings_turn_it_on_and_off(opened: Open, project: Path) -> None:
    token = corpus.TOKENS["github-token"][0](Random(8))
    assert stored_by(opened(), token) == token
    assert stored_by(opened(redact="unless off"), token) != token
    write_settings(project, "[redaction]\nenabled = true\n")
    assert stored_by(opened(), token) != token
    assert stored_by(opened(redact=False), token) == token
    write_settings(project, "[redaction]\nenabled = false\n")
    assert stored_by(opened(redact="unless off"), token) == token
    assert stored_by(opened(redact=True), token) != token
    assert stored_by(opened(redact=Redactor(b"k")), token) == Redactor(b"k").text(token)


def test_settings_choose_kinds_allow_texts_and_add_patterns(opened: Open, project: Path) -> None:
    hub = corpus.TOKENS["github-token"][0](Random(9))
    lab = corpus.TOKENS["gitlab-token"][0](Random(9))
    write_settings(
        project,
        f"""
        [redaction]
        kinds = ["github-token", "acme-key"]
        allow = ["{hub[:10]}*"]

        [[redaction.patterns]]
        kind = "acme-key"
        prefix = "acme_"
        characters = "hex"
        length = [8, 8]
        """,
    )
    other = corpus.TOKENS["github-token"][0](Random(10))
    text = f"{hub} {lab} {other} acme_0123abcd acme_zzzz"
    stored = stored_by(opened(redact=True), text)
    assert {one.kind for one in placeholders_in(stored)} == {"github-token", "acme-key"}
    assert stored.startswith(f"{hub} {lab} [redacted:github-token:")
    assert stored.endswith(" acme_zzzz")


def test_a_users_own_kind_comes_back_from_within_a_value(
    opened: Open, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = 'kind = "acme-key"\nprefix = "acme_"\ncharacters = "hex"\nlength = [8, 8]'
    write_settings(project, f"[[redaction.patterns]]\n{pattern}\n")
    session = opened(redact=True).create_session("implementer")
    session.save_checkpoint(state={"a": "use acme_0123abcd"})
    session.close()
    monkeypatch.setenv("ACME_URL", "https://acme.example.org/acme_0123abcd/x")
    again = opened(redact=True).resume_session(session.id)
    assert again.state == {"a": "use acme_0123abcd"}
    assert again.missing_secrets() == []
    values = opened(redact=True).resume_session(session.id, rehydrate=["(acme_0123abcd)"])
    assert values.state == {"a": "use acme_0123abcd"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("redaction = 1", id="no table"),
        pytest.param("[redaction]\nenabled = 1", id="enabled"),
        pytest.param("[redaction]\nother = 1", id="unknown"),
        pytest.param('[redaction]\nkinds = ["no-such-kind"]', id="kinds"),
        pytest.param('[redaction]\nallow = "x"', id="allow"),
        pytest.param("[redaction]\npatterns = 1", id="patterns"),
        pytest.param('[[redaction.patterns]]\nkind = "A"\nprefix = "acme_"', id="kind"),
        pytest.param('[[redaction.patterns]]\nkind = "a"\nprefix = "a"', id="prefix"),
        pytest.param('[[redaction.patterns]]\nkind = "a"\nprefix = "(a+)+"', id="expression"),
        pytest.param(
            '[[redaction.patterns]]\nkind = "a"\nprefix = "acme"\ncharacters = "x"', id="characters"
        ),
        pytest.param(
            '[[redaction.patterns]]\nkind = "a"\nprefix = "acme"\nlength = [9, 1]', id="length"
        ),
    ],
)
def test_wrong_settings_are_refused(opened: Open, project: Path, text: str) -> None:
    write_settings(project, text)
    with pytest.raises(InvalidConfiguration, match=r"^\S+/\.agents/holdfast\.toml: .*redaction"):
        opened(redact=True)


def test_wrong_arguments_and_keys_are_refused(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidConfiguration):
        opened(redact="yes")
    monkeypatch.setenv("HOLDFAST_REDACTION_KEY", "short")
    with pytest.raises(InvalidConfiguration, match="HOLDFAST_REDACTION_KEY"):
        opened(redact=True)


def test_machines_that_share_a_key_make_the_same_placeholders(
    opened: Open, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REDACTION_KEY", "ab" * 32)
    token = corpus.TOKENS["github-token"][0](Random(11))
    assert stored_by(opened(redact=True), token) == Redactor(bytes.fromhex("ab" * 32)).text(token)
    assert not (project / ".agents" / FILE_NAME).exists()


# The cost -----------------------------------------------------------------------------------


class Counting(Redactor):
    """Counts the characters that are really looked at."""

    seen = 0

    def _scan(self, text: str) -> Any:
        self.seen += len(text)
        return super()._scan(text)


def test_what_was_saved_before_is_not_looked_at_again() -> None:
    dice = Random(12)
    redactor = Counting(b"k")
    encoder = StateEncoder(screen=redactor)
    messages = [{"role": "user", "content": "word " * 200 + str(n)} for n in range(300)]
    log = "a line of output\n" * 3000
    state: dict[str, Any] = {"messages": messages, "log": log, "vars": {"n": "v" * 40}}
    encoder.accept(encoder.encode(state))
    whole = redactor.seen
    assert whole > 300_000
    for step in range(20):
        redactor.seen = 0
        token = corpus.TOKENS["github-token"][0](dice)
        messages.append({"role": "tool", "content": f"{step}: {token} " + "x " * 400})
        state["log"] += f"{step}\n"
        encoded = encoder.encode(state)
        encoder.accept(encoded)
        assert redactor.seen < 20_000
        assert token.encode() not in b"".join(bytes(one) for one in encoded.chunks.values())
    # A change in the middle is found without looking at its neighbours.
    redactor.seen = 0
    messages[100] = {"role": "user", "content": "another text"}
    encoder.accept(encoder.encode(state))
    assert redactor.seen < 60_000


def test_what_is_stored_bit_by_bit_is_what_is_stored_at_once() -> None:
    dice = Random(13)
    redactor = Redactor(b"k")
    encoder = StateEncoder(screen=redactor)
    chunks: dict[bytes, bytes] = {}

    def read_chunks(wanted: Iterable[bytes]) -> dict[bytes, bytes]:
        return {one: chunks[one] for one in wanted}

    state: dict[str, Any] = {"messages": [], "log": "start " * 200}
    for step in range(60):
        token = corpus.TOKENS["github-token"][step % 5](dice)
        state["messages"].append({"n": step, "text": token if step % 3 else "plain " * 50})
        # Cut anywhere, also in the middle of a token.
        state["log"] += dice.choice([token[:20], token[20:], f" {token} ", "\nplain\n"])
        encoded = encoder.encode(state)
        encoder.accept(encoded)
        chunks.update({digest: bytes(data) for digest, data in encoded.chunks.items()})
        payload = Payload(encoded.manifest, encoded.refs)
        stored = decode_state(payload, read_chunks).state
        assert stored["messages"] == redactor.value(state["messages"])
        assert redactor.find(stored["log"]) == []


def test_a_flag_is_brought_together_with_an_argument_that_is_added_later() -> None:
    secret = corpus.some(Random(14), corpus.ALNUM, 20)
    redactor = Redactor(b"k")
    chunks: dict[bytes, bytes] = {}

    def read_chunks(wanted: Iterable[bytes]) -> dict[bytes, bytes]:
        return {one: chunks[one] for one in wanted}

    def stored(encoder: StateEncoder, state: dict[str, Any]) -> tuple[Payload, Any]:
        encoded = encoder.encode(state)
        encoder.accept(encoded)
        chunks.update({digest: bytes(data) for digest, data in encoded.chunks.items()})
        payload = Payload(encoded.manifest, encoded.refs)
        return payload, decode_state(payload, read_chunks).state["args"]

    arguments = ["tool", "word " * 200, "--token"]
    encoder = StateEncoder(screen=redactor)
    begun, _ = stored(encoder, {"args": arguments})
    _, grown = stored(encoder, {"args": [*arguments, secret]})
    assert grown == redactor.value([*arguments, secret])
    assert secret not in grown
    # Two that are added are no pair of a name and a value.
    _, more = stored(encoder, {"args": [*arguments, secret, "password", "sentence"]})
    assert more[-2:] == ["password", "sentence"]
    # A process that adds to the list without reading it.
    outline = outline_state(begun, read_chunks).state["args"]
    _, added = stored(StateEncoder(screen=redactor), {"args": outline.plus([secret])})
    assert added == grown


def test_a_secret_that_arrives_in_pieces_is_found_when_it_is_whole() -> None:
    token = corpus.TOKENS["github-token"][0](Random(15))
    encoder = StateEncoder(screen=Redactor(b"k"))
    chunks: dict[bytes, bytes] = {}
    pieces = [{"delta": "word " * 200}]
    for at in range(0, len(token), 5):
        pieces.append({"delta": token[at : at + 5]})
        encoded = encoder.encode({"pieces": pieces})
        encoder.accept(encoded)
        chunks.update({digest: bytes(data) for digest, data in encoded.chunks.items()})
    payload = Payload(encoded.manifest, encoded.refs)
    stored = decode_state(payload, lambda wanted: {one: chunks[one] for one in wanted}).state
    assert stored["pieces"] == Redactor(b"k").value(pieces)
    assert "".join(one["delta"] for one in stored["pieces"]).endswith("]")


# The command line ---------------------------------------------------------------------------


def holdfast(
    project: Path, *arguments: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        cwd=project, capture_output=True, text=True, timeout=120, check=False, input=stdin,
    )  # fmt: skip


def test_a_program_that_is_run_leaves_no_secret_and_starts_again_with_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{project}/.agents/sessions.db?compress=off"
    token = corpus.TOKENS["github-token"][0](Random(14))
    plain = corpus.some(Random(14), corpus.ALNUM, 24)
    program = "import sys; open('got.txt', 'a').write(sys.argv[2] + '\\n'); sys.exit(3)"
    command = [sys.executable, "-c", program, "--api-token", plain, token]
    done = holdfast(project, "run", "--url", url, "--", *command)
    assert done.returncode == 3, done.stderr
    (project / "got.txt").unlink()
    secrets = {"token": token, "plain": plain}
    assert found_on_disk(project / ".agents", secrets) == []
    refused = holdfast(project, "resume", "--url", url)
    assert refused.returncode != 0
    assert "[redacted:" in refused.stderr
    assert not (project / "got.txt").exists()
    monkeypatch.setenv("ONE", token)
    monkeypatch.setenv("TWO", plain)
    again = holdfast(project, "resume", "--url", url)
    assert again.returncode == 3, again.stderr
    assert (project / "got.txt").read_text() == f"{plain}\n"
    (project / "got.txt").unlink()
    assert found_on_disk(project / ".agents", secrets) == []


def test_commands_save_without_secrets_and_show_placeholders(project: Path) -> None:
    url = f"sqlite:///{project}/.agents/sessions.db?compress=off"
    token = corpus.TOKENS["github-token"][0](Random(15))
    saved = holdfast(
        project, "save", "first", "--url", url, "--agent-type", "x", "--state", "-",
        stdin=f'{{"token": "{token}"}}',
    )  # fmt: skip
    assert saved.returncode == 0, saved.stderr
    assert holdfast(project, "decide", "--url", url, f"keep {token}").returncode == 0
    assert found_on_disk(project / ".agents", {"token": token}) == []
    shown = holdfast(project, "show", "first", "--url", url, "--json").stdout
    assert "[redacted:github-token:" in shown
