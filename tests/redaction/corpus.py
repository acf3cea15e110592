"""Secrets of every kind, made up anew for each run, and what looks like one but is none.

The beginnings that scanners know tokens by are put together here from pieces, so that no file of
this project contains anything that looks like a token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import string
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from holdfast.redaction.placeholders import PATTERN

ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
BASE32 = string.ascii_uppercase + "234567"
LOWER = string.ascii_lowercase + string.digits


def some(dice: Random, alphabet: str, count: int) -> str:
    """Return random characters; the first and the last are letters or digits, as issuers make them."""
    plain = [one for one in alphabet if one.isalnum()]
    middle = [dice.choice(alphabet) for _ in range(count - 2)]
    return "".join([dice.choice(plain), *middle, dice.choice(plain)])


def _jwt(dice: Random) -> str:
    def part(document: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    head = part({"alg": "HS256", "typ": "JWT"})
    return f"{head}.{part({'sub': dice.randrange(10**9)})}.{some(dice, URLSAFE, 43)}"


def _private_key(dice: Random, label: str = "RSA ") -> str:
    lines = [some(dice, BASE64, 64) for _ in range(12)]
    frame = f"{label}PRIVATE" + " KEY-----"
    return "\n".join(
        [f"-----BEGIN {frame}", *lines, some(dice, BASE64, 20) + "==", f"-----END {frame}"]
    )


TOKENS: dict[str, list[Callable[[Random], str]]] = {
    "aws-access-key": [
        lambda d: "AK" + "IA" + some(d, BASE32, 16),
        lambda d: "AS" + "IA" + some(d, BASE32, 16),
    ],
    "google-api-key": [lambda d: "AI" + "za" + some(d, URLSAFE, 35)],
    "google-oauth": [
        lambda d: "GOC" + "SPX-" + some(d, URLSAFE, 28),
        lambda d: "ya" + "29." + some(d, URLSAFE, 120),
    ],
    "azure-secret": [lambda d: some(d, ALNUM, 3) + "8Q" + "~" + some(d, URLSAFE + "~.", 34)],
    "alibaba-key": [lambda d: "LT" + "AI" + some(d, ALNUM, 20)],
    "tencent-key": [lambda d: "AK" + "ID" + some(d, ALNUM, 32)],
    "digitalocean-token": [lambda d: "do" + "p_v1_" + some(d, HEX, 64)],
    "cloudflare-key": [lambda d: "v1" + ".0-" + some(d, HEX, 24) + "-" + some(d, HEX, 146)],
    "heroku-key": [lambda d: "HR" + "KU-" + some(d, URLSAFE, 60)],
    "flyio-token": [lambda d: "fo" + "1_" + some(d, URLSAFE, 43)],
    "netlify-token": [lambda d: "nf" + "p_" + some(d, ALNUM, 36)],
    "supabase-key": [lambda d: "sb" + "p_" + some(d, HEX, 40)],
    "planetscale-token": [lambda d: "pscale" + "_tkn_" + some(d, URLSAFE, 43)],
    "neon-key": [lambda d: "na" + "pi_" + some(d, LOWER, 64)],
    "databricks-token": [lambda d: "da" + "pi" + some(d, HEX, 32)],
    "vault-token": [lambda d: "hv" + "s." + some(d, URLSAFE, 90)],
    "terraform-token": [lambda d: some(d, ALNUM, 14) + ".atl" + "asv1." + some(d, URLSAFE, 67)],
    "pulumi-token": [lambda d: "pu" + "l-" + some(d, HEX, 40)],
    "doppler-token": [lambda d: "dp" + ".st.dev." + some(d, ALNUM, 43)],
    "1password-token": [lambda d: "op" + "s_ey" + "J" + some(d, URLSAFE, 300)],
    "age-key": [lambda d: "AGE-SECRET" + "-KEY-1" + some(d, UPPER, 58)],
    "github-token": [
        *(
            (lambda d, letter=letter: f"gh{letter}" + "_" + some(d, ALNUM, 36))
            for letter in "pousr"
        ),
        lambda d: "github" + "_pat_" + some(d, ALNUM, 22) + "_" + some(d, ALNUM, 59),
    ],
    "gitlab-token": [lambda d: "gl" + "pat-" + some(d, URLSAFE, 20)],
    "bitbucket-token": [lambda d: "AT" + "BB" + some(d, ALNUM, 32)],
    "atlassian-token": [lambda d: "AT" + "ATT3xFfGF0" + some(d, URLSAFE, 180)],
    "npm-token": [lambda d: "np" + "m_" + some(d, ALNUM, 36)],
    "pypi-token": [lambda d: "py" + "pi-AgEIcHlwaS5vcmc" + some(d, URLSAFE, 150)],
    "rubygems-key": [lambda d: "ruby" + "gems_" + some(d, HEX, 48)],
    "crates-token": [lambda d: "ci" + "o" + some(d, ALNUM, 32)],
    "nuget-key": [lambda d: "oy" + "2" + some(d, LOWER, 43)],
    "docker-token": [lambda d: "dckr" + "_pat_" + some(d, URLSAFE, 27)],
    "buildkite-token": [lambda d: "bk" + "ua_" + some(d, HEX, 40)],
    "circleci-token": [lambda d: "CCI" + "PAT_" + some(d, ALNUM, 22) + "_" + some(d, HEX, 40)],
    "anthropic-key": [lambda d: "sk-" + "ant-api03-" + some(d, URLSAFE, 93) + "AA"],
    "openrouter-key": [lambda d: "sk-" + "or-v1-" + some(d, HEX, 64)],
    "langfuse-key": [lambda d: "sk-" + "lf-" + str(uuid.UUID(int=d.getrandbits(128)))],
    "openai-key": [
        lambda d: "sk-" + "proj-" + some(d, URLSAFE, 120),
        lambda d: "sk-" + some(d, ALNUM, 48),
    ],
    "huggingface-token": [lambda d: "h" + "f_" + some(d, string.ascii_letters, 34)],
    "groq-key": [lambda d: "gs" + "k_" + some(d, ALNUM, 52)],
    "xai-key": [lambda d: "xa" + "i-" + some(d, ALNUM, 80)],
    "perplexity-key": [lambda d: "ppl" + "x-" + some(d, ALNUM, 48)],
    "replicate-token": [lambda d: "r" + "8_" + some(d, ALNUM, 37)],
    "fireworks-key": [lambda d: "f" + "w_" + some(d, ALNUM, 24)],
    "cerebras-key": [lambda d: "cs" + "k-" + some(d, LOWER, 48)],
    "nvidia-key": [lambda d: "nv" + "api-" + some(d, URLSAFE, 64)],
    "langsmith-key": [lambda d: "lsv2" + "_pt_" + some(d, HEX, 32) + "_" + some(d, HEX, 10)],
    "pinecone-key": [lambda d: "pc" + "sk_" + some(d, ALNUM, 60)],
    "tavily-key": [lambda d: "tv" + "ly-dev-" + some(d, ALNUM, 32)],
    "slack-token": [
        lambda d: "xo" + f"xb-{d.randrange(10**11, 10**12)}-{d.randrange(10**12, 10**13)}-" + some(d, ALNUM, 24),
        lambda d: "xa" + f"pp-1-A{some(d, UPPER, 10)}-{d.randrange(10**12, 10**13)}-" + some(d, HEX, 64),
    ],
    "telegram-token": [lambda d: f"{d.randrange(10**8, 10**10)}:A" + "A" + some(d, URLSAFE, 33)],
    "discord-token": [lambda d: "M" + some(d, ALNUM, 25) + "." + some(d, ALNUM, 6) + "." + some(d, URLSAFE, 38)],
    "twilio-key": [lambda d: "S" + "K" + some(d, HEX, 32)],
    "sendgrid-key": [lambda d: "S" + "G." + some(d, URLSAFE, 22) + "." + some(d, URLSAFE, 43)],
    "mailgun-key": [lambda d: "ke" + "y-" + some(d, HEX, 32)],
    "mailchimp-key": [lambda d: some(d, HEX, 32) + "-u" + "s12"],
    "stripe-key": [
        lambda d: "sk" + "_live_" + some(d, ALNUM, 24),
        lambda d: "rk" + "_test_" + some(d, ALNUM, 99),
    ],
    "webhook-secret": [lambda d: "wh" + "sec_" + some(d, ALNUM, 32)],
    "square-token": [lambda d: "sq0" + "csp-" + some(d, URLSAFE, 43)],
    "braintree-token": [lambda d: "access_token" + "$production$" + some(d, LOWER, 16) + "$" + some(d, HEX, 32)],
    "shopify-token": [lambda d: "shp" + "at_" + some(d, HEX, 32)],
    "newrelic-key": [lambda d: "NR" + "AK-" + some(d, UPPER, 27)],
    "sentry-token": [lambda d: "sntr" + "yu_" + some(d, HEX, 64)],
    "grafana-token": [lambda d: "gl" + "sa_" + some(d, ALNUM, 32) + "_" + some(d, HEX, 8)],
    "posthog-key": [lambda d: "ph" + "x_" + some(d, ALNUM, 43)],
    "linear-key": [lambda d: "lin" + "_api_" + some(d, ALNUM, 40)],
    "notion-token": [lambda d: "nt" + "n_" + some(d, ALNUM, 46)],
    "airtable-token": [lambda d: "pa" + "t" + some(d, ALNUM, 14) + "." + some(d, HEX, 64)],
    "figma-token": [lambda d: "fi" + "gd_" + some(d, URLSAFE, 40)],
    "dropbox-token": [lambda d: "s" + "l." + some(d, URLSAFE, 140)],
    "postman-key": [lambda d: "PM" + "AK-" + some(d, HEX, 24) + "-" + some(d, HEX, 34)],
    "facebook-token": [lambda d: "EA" + "AC" + some(d, ALNUM, 160)],
    "jwt": [_jwt],
    "private-key": [
        _private_key,
        lambda d: _private_key(d).replace(
            "-----\n", f"-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{some(d, UPPER, 32)}\n\n", 1
        ),
        lambda d: _private_key(d, "OPENSSH "),
        lambda d: _private_key(d, "EC "),
        lambda d: _private_key(d, ""),
    ],
}  # fmt: skip
"""Kinds with a mark of their own: they are found in any text."""

PLACES: dict[str, str] = {
    "prose": "I used {} to log in, and it worked.",
    "alone": "{}",
    "export": "export SOME_VARIABLE={}\n",
    "env file": "A=1\nTHE_NAME={}\nB=2\n",
    "quoted": 'client = Client("{}")',
    "single quotes": "client = Client('{}')",
    "json": '{{"a": 1, "field": "{}", "b": null}}',
    "json in a string": '{{\\"field\\": \\"{}\\"}}',
    "escaped lines": "first\\n{}\\nlast",
    "header": "X-Whatever: {}\r\nAccept: */*\r\n",
    "option": "tool --option {} --quiet",
    "query": "GET https://api.example.org/v1/items?field={}&page=2",
    "yaml": "env:\n  field: {}\n  other: 1\n",
    "brackets": "<{}> [{}] ({})",
}


PASSWORDS: dict[str, tuple[str, int]] = {
    "16 of A-z0-9!%^*": (ALNUM + "!%^*", 16),
    "16 of A-z0-9!@#$%^&*-_+=?": (ALNUM + "!@#$%^&*-_+=?", 16),
    "10 of A-z0-9!%^*": (ALNUM + "!%^*", 10),
    "10 of A-z0-9": (ALNUM, 10),
}
"""What passwords consist of, and how long they are. They begin and end with any character."""


def password_like(dice: Random, alphabet: str, count: int) -> str:
    """Return random characters, as programs that make passwords do."""
    return "".join(dice.choice(alphabet) for _ in range(count))


def _password(dice: Random) -> str:
    return password_like(dice, *dice.choice(list(PASSWORDS.values())))


@dataclass(frozen=True)
class Named:
    """A secret that its name tells: ``text`` has it in the place of ``{}``."""

    title: str
    text: str
    make: Callable[[Random], str]


_QUOTED_OFTEN = "\\" * 7 + '"'

NAMED: list[Named] = [
    Named("env password", "DB_PASSWORD={}\n", _password),
    Named("env pass", "USER=bob\nPASS={}\n", _password),
    Named("shell pass", "export PASS='{}'\n", _password),
    Named("rails", "SECRET_KEY_BASE={}\n", lambda d: some(d, HEX, 128)),
    Named("rails in yaml", "production:\n  secret_key_base: {}\n", lambda d: some(d, HEX, 128)),
    Named("phoenix", 'secret_key_base: "{}",\n', lambda d: some(d, BASE64, 64)),
    Named("env token", "export SERVICE_TOKEN={}\n", lambda d: some(d, ALNUM, 32)),
    Named("env hex key", "DATADOG_API_KEY={}\n", lambda d: some(d, HEX, 32)),
    Named("env aws", "AWS_SECRET_ACCESS_KEY={}\n", lambda d: password_like(d, BASE64, 40)),
    Named("env quoted", 'OPENWEATHER_API_KEY="{}"\n', lambda d: some(d, HEX, 32)),
    Named("powershell", '$env:CLIENT_SECRET = "{}"', lambda d: some(d, URLSAFE, 40)),
    Named("json api key", '{{"api_key": "{}", "n": 1}}', lambda d: some(d, ALNUM, 32)),
    Named("json camel case", '{{"clientSecret":"{}"}}', lambda d: some(d, URLSAFE, 40)),
    Named("json password", '{{"user": "bob", "password": "{}"}}', _password),
    Named("json in json", '{{\\"accessToken\\": \\"{}\\"}}', lambda d: some(d, ALNUM, 40)),
    Named("pair in json", '{{"name": "API_TOKEN", "value": "{}"}}', lambda d: some(d, ALNUM, 32)),
    Named("pair in yaml", "- name: API_TOKEN\n  value: {}\n", lambda d: some(d, ALNUM, 32)),
    Named("python", 'password = "{}"\n', _password),
    Named("python typed", 'api_key: str = "{}"\n', lambda d: some(d, ALNUM, 32)),
    Named("python dict", "config['secret_key'] = '{}'\n", lambda d: some(d, URLSAFE, 50)),
    Named("javascript", "const authToken = '{}';", lambda d: some(d, ALNUM, 40)),
    Named("yaml", "database:\n  password: {}\n", _password),
    Named("toml", 'access_token = "{}"\n', lambda d: some(d, ALNUM, 40)),
    Named("ini", "[x]\npassword = {}\n", _password),
    Named("option", "deploy --api-token {} --now", lambda d: some(d, ALNUM, 32)),
    Named("option =", "deploy --password={} --now", _password),
    Named("curl header", 'curl -H "X-Api-Key: {}" https://x.org', lambda d: some(d, ALNUM, 32)),
    Named("bearer", 'curl -H "Authorization: Bearer {}"', lambda d: some(d, URLSAFE, 40)),
    Named("bearer alone", "used Bearer {} for it", lambda d: some(d, ALNUM, 40)),
    Named("token header", "Authorization: token {}\r\n", lambda d: some(d, HEX, 40)),
    Named(
        "basic",
        "Authorization: Basic {}\r\n",
        lambda d: base64.b64encode(f"bob:{_password(d)}".encode()).decode(),
    ),
    Named("curl user", "curl -u bob:{} https://x.org", _password),
    Named("query", "https://x.org/a?access_token={}&n=1", lambda d: some(d, ALNUM, 40)),
    Named(
        "signature",
        "https://a.blob.core.windows.net/c?sv=2024&sig={}&se=1",
        lambda d: some(d, ALNUM, 43) + "%3D",
    ),
    Named("connection url", "postgresql://app:{}@db.local:5432/app", _password),
    Named("redis url", "redis://:{}@cache:6379/0", lambda d: some(d, ALNUM, 24)),
    Named("clone url", "git clone https://oauth2:{}@git.org/a.git", lambda d: some(d, ALNUM, 30)),
    Named("token in url", "https://{}@git.org/a/b.git", lambda d: some(d, ALNUM, 40)),
    Named(
        "azure storage",
        "AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
        lambda d: some(d, BASE64, 86) + "==",
    ),
    Named("odbc", "Server=db;User Id=sa;Password={};", _password),
    Named("dsn", "host=db user=app password={} dbname=app", _password),
    Named("compose", "environment:\n  POSTGRES_PASSWORD: {}\n", _password),
    Named("properties", "spring.datasource.password={}\n", _password),
    Named("env in json", '{{"Env": ["HOME=/root", "DB_PASSWORD={}"]}}', _password),
    Named("xml", "<password>{}</password>", _password),
    Named("npmrc", "//registry.example.org/:_authToken={}\n", lambda d: some(d, ALNUM, 36)),
    Named(
        "docker config",
        '{{"auths": {{"x.org": {{"auth": "{}"}}}}}}',
        lambda d: base64.b64encode(f"bob:{_password(d)}".encode()).decode(),
    ),
    Named(
        "slack webhook",
        "https://hooks.slack.com/services/{}",
        lambda d: f"T{some(d, UPPER, 10)}/B{some(d, UPPER, 10)}/{some(d, ALNUM, 24)}",
    ),
    Named(
        "discord webhook",
        "https://discord.com/api/webhooks/{}",
        lambda d: f"{d.randrange(10**17, 10**18)}/{some(d, URLSAFE, 68)}",
    ),
    Named("curl user, long", "curl --user bob:{} https://x.org", _password),
    Named("curl user, attached", "curl -ubob:{} https://x.org", _password),
    Named("curl user, at line start", "curl \\\n-u 'bob:{}'", _password),
    Named("sshpass", "sshpass -p {} ssh host", _password),
    Named("docker login", "docker login -u bob -p {} x.org", _password),
    Named("mysql", "mysql -u root -p{} db", _password),
    Named("netrc", "machine x.org\n  login bob\n  password {}\n", _password),
    Named("dockerfile", "FROM x\nENV DB_PASSWORD {}\n", _password),
    Named("fish", "set -gx DB_PASSWORD {}\n", _password),
    Named("sql", "CREATE USER bob WITH PASSWORD '{}';", _password),
    Named("mysql user", "CREATE USER bob IDENTIFIED BY '{}';", _password),
    Named("arguments in json", '["tool", "--password", "{}"]', _password),
    Named("yaml block", "password: |\n  {}\n", _password),
    Named("next line", '"password":\n    "{}"\n', _password),
    Named(
        "escaped four times", _QUOTED_OFTEN.join(["{{", "password", ": ", "{}", "}}"]), _password
    ),
    Named("bearer, short", "Authorization: Bearer {}\r\n", lambda d: some(d, ALNUM, 14)),
    Named(
        "cookie in json", '{{"Cookie": "{}; theme=dark"}}', lambda d: f"sid={some(d, LOWER, 32)}"
    ),
    Named("set-cookie", '["set-cookie", "{}; Path=/"]', lambda d: f"sid={some(d, LOWER, 32)}"),
    Named("cookie", "Cookie: {}\r\n", lambda d: f"sessionid={some(d, LOWER, 32)}"),
]
"""Secrets without a mark of their own, each with the name that tells them."""


def named(dice: Random, rounds: int) -> Iterator[tuple[str, str, str]]:
    """Yield titles, texts and the secrets in them."""
    for one in NAMED:
        for _ in range(rounds):
            secret = one.make(dice)
            yield one.title, one.text.format(secret), secret


def passwords(dice: Random, rounds: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield what passwords consist of, titles, texts and the passwords in them."""
    for title, (alphabet, count) in PASSWORDS.items():
        for one in NAMED:
            if one.make is _password:
                for _ in range(rounds):
                    secret = password_like(dice, alphabet, count)
                    yield title, one.title, one.text.format(secret), secret


def is_left(secret: str, text: str) -> bool:
    """Tell whether a text still has a part of a secret that is worth having."""
    rest = PATTERN.sub("", text)
    return any(secret[at : at + 5] in rest for at in range(len(secret) - 4))


def typed(
    dice: Random, rounds: int, kinds: Iterable[str] = tuple(TOKENS)
) -> Iterator[tuple[str, str, str, str]]:
    """Yield kinds, the names of places, texts and the secrets in them."""
    for kind in kinds:
        for make in TOKENS[kind]:
            for place, text in PLACES.items():
                for _ in range(rounds):
                    secret = make(dice)
                    yield kind, place, text.replace("{}", secret).format(), secret


def harmless(dice: Random) -> Iterator[tuple[str, str]]:
    """Yield titles and texts without any secret, as developers and programs write them."""

    def sha() -> str:
        return hashlib.sha1(dice.randbytes(8)).hexdigest()

    def sha256() -> str:
        return hashlib.sha256(dice.randbytes(8)).hexdigest()

    def identity() -> str:
        return str(uuid.UUID(int=dice.getrandbits(128), version=4))

    def packed(size: int) -> str:
        return base64.b64encode(dice.randbytes(size)).decode()

    for _ in range(50):
        yield "commit", f"commit {sha()}\nAuthor: A <a@example.org>\n"
        yield "short log", f"{sha()[:7]} Fix the token parser ({sha()})"
        yield "diff", f"index {sha()[:10]}..{sha()[:10]} 100644\n--- a/key.py\n+++ b/key.py\n"
        yield "fields", json.dumps({"commit": sha(), "tree": sha(), "parent": [sha(), sha()]})
        yield "sha256", f"sha256:{sha256()}  dist/holdfast-0.1.0.tar.gz"
        yield "uuid", f"session {identity()} continues {identity()}"
        yield "uuid field", json.dumps({"session_token_id": identity(), "key": identity()})
        yield "image", f"data:image/png;base64,{packed(3000)}"
        yield "image field", json.dumps({"type": "image", "data": packed(2000)})
        yield "npm lock", f'"integrity": "sha512-{packed(64)}",\n'
        yield "poetry lock", f'{{file = "a-1.0.whl", hash = "sha256:{sha256()}"}},\n'
        yield "go sum", f"example.org/token v1.2.3 h1:{packed(32)}\n"
        yield "cargo lock", f'checksum = "{sha256()}"\n'
        yield "docker digest", f"FROM python@sha256:{sha256()}\n"
        yield "public key", f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{packed(32)} me@host"
        yield (
            "certificate",
            (f"-----BEGIN CERTIFICATE-----\n{packed(48)}\n{packed(48)}\n-----END CERTIFICATE-----"),
        )
        yield "etag", f'ETag: "{sha()}"\r\nX-Request-Id: {identity()}\r\n'
        yield "usage", json.dumps({"input_tokens": 1234, "max_tokens": 4096, "total_tokens": 99})
        yield "tool id", f"toolu_{some(dice, ALNUM, 24)} call_{some(dice, ALNUM, 24)}"
        yield "message id", f"msg_{some(dice, ALNUM, 24)} req_{some(dice, ALNUM, 24)}"
        yield "path", f"/home/me/.cache/pip/wheels/{sha()[:2]}/{sha256()}/token_key.whl"
        yield "code", "token = self.next_token()\nkey = sorted(items, key=lambda one: one.key)\n"
        yield "types", "token: _StrPathToken\nsecret_key: Required[AuthConfigV2SecretKey]\n"
        yield "usage", "via the --username and --password options"
        yield "reading", 'api_key = os.environ["API_KEY"]\npassword = getpass("password: ")\n'
        yield "example", "API_KEY=your-api-key-here\nPASSWORD=changeme\nTOKEN=<token>\n"
        yield "shell", 'curl -H "Authorization: Bearer $TOKEN" -u "$USER:$PASSWORD" https://x.org'
        yield "template", "password: ${DB_PASSWORD}\ntoken: {{ secrets.TOKEN }}\n"
        yield "annotation", "def login(user: str, password: str | None = None) -> Token: ...\n"
        yield "url", "postgresql://agents@db.example.org:5432/agents?sslmode=require"
        yield "url port", "http://localhost:8080/a@b and https://user@host.org/x"
        yield (
            "prose",
            "The secret to a good password is its length; the key token is a bearer token.",
        )
        yield (
            "model",
            "claude-sonnet-4-5-20250929 gpt-4o-2024-08-06 sk-learn task-runner disk-usage",
        )
