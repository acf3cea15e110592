"""What is found, and what is left alone."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from holdfast.redaction import KINDS, Redactor, extra_rule, placeholders_in
from holdfast.redaction.glance import WORDS, may_hold_secret
from holdfast.redaction.kinds import TYPED
from tests.redaction import corpus

REDACTOR = Redactor(b"k" * 32)
SOURCES = Path(__file__).parents[2]


def lines_with_alarms(files: list[Path]) -> tuple[int, list[str]]:
    lines, alarms = 0, []
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        lines += text.count("\n")
        alarms += [f"{path}: {one.kind}" for one in REDACTOR.find(text)]
    return lines, alarms


def calls_to_find(text: str) -> int:
    """Count the calls that looking at a text takes, those of functions in C and of generators too."""
    # Patterns are compiled on their first use, which is not what is counted.
    Redactor(b"k" * 32).find(text)
    fresh, calls = Redactor(b"k" * 32), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        fresh.find(text)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("kind", sorted(corpus.TOKENS))
def test_a_secret_with_a_mark_is_found_in_any_place_and_by_its_kind(kind: str) -> None:
    missed = []
    for _, place, text, secret in corpus.typed(Random(1), 2, [kind]):
        clean = REDACTOR.text(text)
        if secret in clean or {one.kind for one in placeholders_in(clean)} != {kind}:
            missed.append((place, text, clean))
    assert missed == []


def test_there_are_samples_of_every_kind() -> None:
    seen = set(corpus.TOKENS)
    for _, text, _ in corpus.named(Random(2), 1):
        seen |= {one.kind for one in REDACTOR.find(text)}
    assert KINDS - seen == set()
    assert len(KINDS) >= 30


def test_nearly_all_secrets_are_found_whole() -> None:
    total, missed = 0, Counter[str]()
    for kind, _, text, secret in corpus.typed(Random(3), 2):
        total += 1
        missed[kind] += secret in REDACTOR.text(text)
    for title, text, secret in corpus.named(Random(3), 40):
        total += 1
        clean = REDACTOR.text(text)
        missed[title] += corpus.is_left(secret, clean)
    assert total > 3000
    assert missed.total() <= 0.05 * total, +missed
    # Each form by itself is found nearly always, too.
    assert {title: count for title, count in missed.items() if count > 6} == {}


def test_passwords_of_any_characters_are_found_whole() -> None:
    total, missed = Counter[str](), Counter[tuple[str, str]]()
    for title, form, text, secret in corpus.passwords(Random(10), 60):
        total[title] += 1
        missed[title, form] += corpus.is_left(secret, REDACTOR.text(text))
    for title, count in total.items():
        left = sum(many for (one, _), many in missed.items() if one == title)
        assert left <= 0.05 * count, (title, +missed)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        pytest.param("DB_PASSWORD={}\nX=1", "Tr0ub4#dor9xZ", id="hash"),
        pytest.param("DB_PASSWORD={}\nX=1", "Tr0ub4&dor;9xZq(L)|m,P", id="signs of a shell"),
        pytest.param("DB_PASSWORD={}\nX=1", "Tr0ub4dor9xZ!", id="exclamation mark at the end"),
        pytest.param("DB_PASSWORD={} # local", "Tr0ub4'dor9xZ", id="quote inside, then a comment"),
        pytest.param('DB_PASSWORD="{}"\n', "Tr0'ub4dor9xZ", id="another quote within quotes"),
        pytest.param("DB_PASSWORD='{}'\n", 'Tr0ub4"dor9xZ', id="double within single quotes"),
        pytest.param('DB_PASSWORD="{}"\n', r"Tr0ub4\\dor9xZ", id="backslashes within quotes"),
        pytest.param('{{"password": "{}"}}', r"Xy7k\"P2mQ9vLs", id="escaped quote"),
        pytest.param(r'"{{\"password\": \"{}\"}}"', r"Xy7k\\\"P2mQ9vLs", id="escaped twice"),
        pytest.param("DB_PASSWORD='{}'\n", "$ecr3tP4ss9xZ", id="dollar sign first"),
        pytest.param("DB_PASSWORD={}\n", "@dm1nP4ss9xZ", id="at sign first"),
        pytest.param("postgres://u:{}@h/db", "p@ss#9x?Zq", id="signs of a URL"),
        pytest.param("db:\n  password: {}\n", "S3cr3t!Pa9", id="yaml"),
        pytest.param("+password = {}\n", "hunter2xyz", id="ini in a diff"),
        pytest.param("   3\tPOSTGRES_PASSWORD: {}\n", "hunter2xyz", id="yaml, numbered"),
        pytest.param("POSTGRES_PASSWORD: {}\n", "correcthorse", id="a word"),
    ],
)
def test_all_of_a_value_is_taken_out_and_nothing_else(text: str, secret: str) -> None:
    whole = {
        str(Redactor(b"k" * 32).placeholder(kind, secret)) for kind in ("password", "url-password")
    }
    assert REDACTOR.text(text.format(secret)) in {text.format(one) for one in whole}
    name = {"password": secret}
    assert REDACTOR.value(name)["password"] in whole


def test_a_key_is_taken_out_with_whatever_stands_before_its_lines() -> None:
    key = corpus.TOKENS["private-key"][0](Random(11))
    first, *lines, last = key.split("\n")
    for text in (
        "\n".join(f"-{line}" for line in [first, *lines, last]),
        "\n".join(f"{at:6}\u2192{line}" for at, line in enumerate([first, *lines, last])),
        "\n".join(f"{at:6}\t{line}" for at, line in enumerate([first, *lines[:-2]])),
        "\n".join(["---- BEGIN SSH2 ENCRYPTED " + "PRIVATE KEY ----", *lines]),
        "\n".join(["PuTTY-User-Key-File-3: ssh-rsa", "Private-Lines: 13", *lines]),
    ):
        clean = REDACTOR.text(text)
        assert not any(line in clean for line in lines)
        assert {one.kind for one in placeholders_in(clean)} == {"private-key"}
    frame = f"{first}\n...\n{last}"
    assert REDACTOR.text(frame) == frame


def test_an_escaped_character_may_stand_before_a_token() -> None:
    token = corpus.TOKENS["github-token"][0](Random(12))
    for before in (r"\u0027", r"token\u003d", r"a=1\u0026", r"\n", "%3D"):
        assert token not in REDACTOR.text(f"{before}{token}")


@pytest.mark.parametrize(
    "text",
    [
        "DB_PASSWORD=$DB_PASS\n",
        'password: "${DB_PASSWORD}"\n',
        "password = $dbPassword\n",
        "DB_PASSWORD=$(cat /run/secrets/db)\n",
        "API_TOKEN=<token>\n",
        "PASSWORD=%PASSWORD%\n",
        "AWS_SECRET_ACCESS_KEY=/run/secrets/aws/access_key2\n",
        "password = ~/.config/pw1\n",
        "password: SecretStr\n",
        "password = password2\n",
        "password = config.passwords[0]\n",
        "token = tokens_by_id2.pop\n",
        "api_key: RuleAwsSandboxProxySecretAccessKey\n",
        "PASS=12 FAIL=3\n",
        "PASS=100000\n",
        "PASS=completed\n",
        "PASS: tests/test_names1.py\n",
        "PASS tests/test_names1.py x7Km2pQ9vLs4\n",
        "if PASS == x7Km2pQ9vLs4: pass\n",
        "self.authkey = process.AuthenticationString(authkey)\n",
        "http://localhost:8080?mail=me@example.org",
        "<password>optional; leave it empty</password>",
        "docker run -u 1000:100000 image and sudo -u postgres:postgres",
        "a library identified by 'libname'",
        "the password 'changed' to another",
        "bearer authentication and basic authentication",
        'option("--password", "password of the user")',
    ],
    ids=lambda text: text.strip(),
)
def test_references_and_code_are_no_values(text: str) -> None:
    assert REDACTOR.text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer …",
        "curl -H 'Authorization: Basic é'",
        "authorization: “a token”",
        "credentials=\ud800",
    ],
)
def test_letters_of_any_script_may_follow_the_name_of_a_header(text: str) -> None:
    assert Redactor(b"k" * 32).text(text) == text


def test_commits_digests_images_and_code_are_left_alone() -> None:
    alarms = [
        (title, text) for title, text in corpus.harmless(Random(4)) if REDACTOR.text(text) != text
    ]
    assert alarms == []


@pytest.mark.row("T23")
def test_every_commit_id_survives() -> None:
    dice = Random(5)
    for _ in range(500):
        sha = corpus.some(dice, corpus.HEX, 40)
        long = corpus.some(dice, corpus.HEX, 64)
        for text in (
            sha,
            f"HEAD is now at {sha}",
            f"git show {sha}:src/auth/token.py",
            f"secret scanning of {sha}..{long}: ok",
            f"token parser: see commit {sha}",
            f'{{"commit": "{sha}", "key": "{long}", "head_sha": "{sha}"}}',
            f"refs/heads/password-reset {sha}",
        ):
            assert REDACTOR.text(text) == text
        fields = {"git_commit": sha, "sha": sha, "digest": long, "password_hash": sha, "oid": sha}
        assert REDACTOR.value(fields) is fields


def test_our_own_sources_raise_no_alarm() -> None:
    files = [
        path
        for folder in ("src", "tests", "docs", "benchmarks")
        for path in (SOURCES / folder).rglob("*")
        if path.suffix in (".py", ".md", ".sql", ".toml")
    ]
    lines, alarms = lines_with_alarms(files)
    assert lines > 30_000
    assert len(alarms) <= lines / 1000, alarms


def test_the_standard_library_raises_almost_none() -> None:
    library = Path(sysconfig.get_path("stdlib"))
    lines, alarms = lines_with_alarms(sorted(library.glob("*.py")))
    assert lines > 50_000
    assert len(alarms) <= lines / 1000, alarms


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "key=",
            "keykey",
            "eyJ",
            "sk-",
            "://",
            "://a:",
            "password: ",
            "Cookie: a=b; ",
            "a",
            "-----",
        ),
        *(
            "-----BEGIN " + "RSA PRIVATE KEY-----",
            'api_key": "',
            "<password>",
            "--token ",
            "Bearer ",
        ),
        "token=abcdef12GH34",
        "password=" + "x1Y" * 300 + "\n",
        "password=\"'",
        "\\npassword: x1 #",
        'password="' + "\\" * 60,
        "docker login a ",
        "mysql -h a ",
        "login a password ",
        "-----BEGIN " + "RSA PRIVATE KEY-----\n-" + "A" * 64,
        'Cookie": ["',
        "password:\n ",
        "[redacted:token:0123456789abcdef] password=Xy7kP2mQ9vLs3 ",
    ],
    ids=lambda unit: unit[:16].strip(),
)
def test_hostile_text_of_megabytes_is_read_in_one_go(unit: str) -> None:
    def text(size: int) -> str:
        return (unit * (size // len(unit) + 1))[:size]

    # Twice the text is twice the work; what a look at nothing takes does not count.
    least = calls_to_find("x")
    once, twice = (calls_to_find(text(size)) - least for size in (30_000, 60_000))
    assert twice <= 2.2 * once + 100
    # Were any pattern to look at a stretch of text again and again, this would never end.
    assert isinstance(REDACTOR.find(text(1_000_000)), list)


@pytest.mark.parametrize("unit", ["1_", "v1_", "8_"])
def test_the_end_of_a_beginning_alone_is_looked_at_by_no_rule(unit: str) -> None:
    assert calls_to_find(unit * 10_000) - calls_to_find("x") < 1000


def test_ten_megabytes_without_a_break_are_read_in_one_go() -> None:
    text = "".join(Random(6).choices(corpus.BASE64, k=10_000_000))
    assert REDACTOR.find(text) == []


def test_only_the_wanted_kinds_are_looked_for() -> None:
    dice = Random(7)
    hub, lab = corpus.TOKENS["github-token"][0](dice), corpus.TOKENS["gitlab-token"][0](dice)
    text = f"{hub} {lab} password=abc123def456"
    only = Redactor(b"k", kinds={"github-token"}).text(text)
    assert hub not in only
    assert lab in only
    assert "abc123def456" in only


def test_a_users_own_kind_is_found() -> None:
    rule = extra_rule("acme-key", "acme.", "hex", 8, 12)
    own = Redactor(b"k", extra=[rule])
    assert "0123abcd" not in own.text("use acme.0123abcd now")
    assert own.text("use acme.xyz now") == "use acme.xyz now"


def test_what_is_allowed_stays() -> None:
    secret = corpus.TOKENS["github-token"][0](Random(8))
    assert Redactor(b"k", allow=[secret]).text(secret) == secret
    assert Redactor(b"k", allow=[secret[:12] + "*"]).text(secret) == secret
    placeholder = Redactor(b"k").text(secret)
    assert Redactor(b"k", allow=[placeholder]).text(secret) == secret
    assert Redactor(b"other", allow=[placeholder]).text(secret) != secret


def test_a_glance_passes_over_no_secret() -> None:
    for _, _, text, _ in corpus.typed(Random(9), 1):
        assert may_hold_secret(text)
    for _, text, _ in corpus.named(Random(9), 5):
        assert may_hold_secret(text)
    assert not may_hold_secret("pytest -q tests/state && git commit -m 'Fix the parser'")
    assert set(WORDS) == {
        anchor.text for rule in TYPED if not rule.in_runs for anchor in rule.anchors
    }
