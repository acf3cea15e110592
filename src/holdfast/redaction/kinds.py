"""The kinds of secrets that carry their own mark: a fixed beginning, a separator, a frame.

Each rule names literal *anchors*, which the first pass looks for all at once, and one pattern that is
tried where an anchor stands. Every repetition in a pattern is possessive or of a fixed length, and none
can begin in the middle of a run of its own characters, so no text makes any of them slow.

The facts are what the issuers say of their formats in public.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from holdfast.redaction.names import CONTEXTUAL
from holdfast.redaction.placeholders import without_filler
from holdfast.redaction.values import (
    is_basic,
    is_bearer,
    is_cookie,
    is_key,
    is_login,
    is_password,
    is_varied,
)

# What may not stand before a token: a character that would make it the tail of something longer. An
# escaped character, a URL-encoded one or the end of a colour code may.
_START: Final = (
    r"(?:(?<![A-Za-z0-9_\-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f])|(?<=[0-9]m)"
    r"|(?<=\\u00[0-9A-Fa-f][0-9A-Fa-f]))"
)
_END: Final = r"(?![A-Za-z0-9_])"
_ALNUM: Final = "[A-Za-z0-9]"
_URLSAFE: Final = r"[A-Za-z0-9_\-]"
_HEX: Final = "[0-9a-f]"


class Anchor(NamedTuple):
    """A literal, where a match begins before it, and what is literal of that."""

    text: str
    least: int
    most: int
    before: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of a kind. The group ``secret``, or else the whole match, is what is taken out.

    Each anchor comes with how far before it a match begins, at least and at most so many characters, and with
    the literal that has to stand right before it, if that is known.
    ``in_runs`` says that there is a long run of letters and digits in it, so that the anchors need to be
    looked for there only; those of other rules are lower case and found in any.
    """

    kind: str
    anchors: tuple[Anchor, ...]
    source: str
    check: Callable[[str], bool]
    in_runs: bool = True

    @property
    def bounded(self) -> bool:
        """Whether it cannot begin in the middle of a word."""
        return self.source.startswith(_START)

    def find(self, text: str, at: int, anchor: Anchor) -> Match | None:
        """Return the match whose anchor stands at ``at``."""
        pattern = _compiled(self.source)
        for back in range(anchor.least, min(anchor.most, at) + 1):
            if (match := pattern.match(text, at - back)) is not None:
                group = "secret" if "secret" in pattern.groupindex else 0
                return Match(*match.span(group), self.check(without_filler(match[group])))
        return None


@cache
def _compiled(source: str) -> re.Pattern[str]:
    """Compile a pattern on its first use: most programs meet few kinds."""
    return re.compile(source)


class Match(NamedTuple):
    """Where a pattern fits, and whether what is there is a secret."""

    start: int
    end: int
    secret: bool


def _token(
    kind: str,
    prefixes: str,
    rest: str,
    check: Callable[[str], bool] = is_varied,
    *,
    start: str = _START,
    end: str = _END,
) -> Rule:
    """Return the rule for tokens that begin with one of the words in ``prefixes``."""
    words = prefixes.split("|")
    any_of = "|".join(re.escape(word) for word in words)
    return Rule(
        kind,
        tuple(_anchor(word) for word in words),
        f"{start}(?:{any_of}){rest}{end}",
        check,
    )


# Percent of the characters of ordinary English text and code, roughly.
_COMMON: Final = dict(zip("etaoinshrdlcumwfgypbvkjxqz", [
    12.7, 9.1, 8.2, 7.5, 7.0, 6.7, 6.3, 6.1, 6.0, 4.3, 4.0, 2.8, 2.8, 2.4, 2.4, 2.2, 2.0, 2.0, 1.9,
    1.5, 1.0, 0.8, 0.2, 0.2, 0.1, 0.1,
], strict=True)) | {"_": 1.5, "-": 1.0, ".": 1.2, "/": 1.0, ":": 0.8, " ": 18.0, "=": 1.0}  # fmt: skip


def _anchor(word: str) -> Anchor:
    """Return the part of a literal that the first pass looks for: it begins with a rare character."""
    at = min(range(max(1, len(word) - 1)), key=lambda i: (_COMMON.get(word[i], 0.5), i))
    return Anchor(word[at:], at, at, word[:at])


def _around(
    kind: str,
    anchor: str,
    back: tuple[int, int],
    pattern: str,
    check: Callable[[str], bool] = is_varied,
) -> Rule:
    """Return the rule for secrets with something characteristic in the middle."""
    return Rule(kind, (Anchor(anchor, *back),), pattern, check)


def _after(kind: str, anchors: str, pattern: str, check: Callable[[str], bool] = is_varied) -> Rule:
    """Return the rule for secrets that follow a literal which is not a part of them."""
    return Rule(kind, tuple(_anchor(one) for one in anchors.split("|")), pattern, check)


def _anywhere(
    kind: str, anchor: str, pattern: str, check: Callable[[str], bool], back: int = 0
) -> Rule:
    """Return the rule for secrets that may be short, or in parts."""
    return Rule(kind, (Anchor(anchor, back, back),), pattern, check, in_runs=False)


# Up to the end, whatever stands before the lines: headers, the marks of a diff, numbers. Without an end the
# lines that look like a key, as far as they go.
_FRAME: Final = r"(?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?"
_KEY_LINES: Final = (
    r"(?:(?:\\{1,15}[rn]|\s|[0-9]{1,5}[\t:|\u2192]|[+\-|>\"',]){0,40}+[A-Za-z0-9+/=]{16,}+){1,400}+"
)
_HEADERS: Final = r"(?:(?:\\[rn]|\s){0,4}+[A-Z][A-Za-z\-]{2,30}: [^\r\n\\]{0,80}+){0,4}+"
_PRIVATE_KEY: Final = (
    rf"-----BEGIN {_FRAME}-----(?:(?:[^\-]{{1,64}}+|-(?!----(?:END|BEGIN) )){{1,250}}+-----END {_FRAME}-----"
    rf"|{_HEADERS}{_KEY_LINES})"
)
_SSH2_KEY: Final = rf"---- BEGIN SSH2 (?:ENCRYPTED )?PRIVATE KEY ----{_HEADERS}{_KEY_LINES}"
_PUTTY_KEY: Final = rf"Private-Lines: [0-9]{{1,3}}(?P<secret>{_KEY_LINES})"
# A word of a command line, and those before the one that counts.
_WORD: Final = r"[\"']?(?P<secret>[^\s\"']{4,200}+)"
_WORDS_BEFORE: Final = r"(?:[^\s]{1,100}+ ){0,8}?"
_LOGIN: Final = r"[\"']?[^\s:\"'/\-][^\s:\"'/]{0,100}+:(?P<secret>[^\s\"'/]{6,200}+)"
# A header, a field of JSON, or a pair in a list.
_QUOTE: Final = r"\\{0,31}+[\"']"
_COOKIE: Final = (
    rf"(?i:ookie)(?:{_QUOTE}\s{{0,2}}+[:,]|:)\s{{0,2}}+\[?\s{{0,2}}+(?:{_QUOTE})?"
    r"(?P<secret>[^\r\n\"'\\]{8,8000}+)"
)
# Up to the last @ before the host: people write passwords into URLs as they are. What begins like the
# number of a port is none.
_URL_PASSWORD: Final = (
    r"://[^\s/:@\"'<>\\?#\[]{0,100}+:(?![0-9]{1,5}[?#])"
    r"(?P<secret>[^\s/\"'<>\\]{3,300})@(?=[A-Za-z0-9\[$%{])"
)


def _always(secret: str) -> bool:
    return True


TYPED: Final[tuple[Rule, ...]] = (
    # Clouds
    _token("aws-access-key", "AKIA|ASIA|ABIA|ACCA", r"[A-Z2-7]{16}"),
    _token("google-api-key", "AIza", rf"{_URLSAFE}{{35}}(?!{_URLSAFE})"),
    _token("google-oauth", "GOCSPX-", rf"{_URLSAFE}{{28}}"),
    _token("google-oauth", "ya29.", rf"{_URLSAFE}{{20,2000}}+"),
    _token("google-oauth", "1//0", rf"{_URLSAFE}{{40,200}}+"),
    _anywhere("azure-secret", "q~", _START + r"[A-Za-z0-9_~.\-]{3}[0-9]Q~[A-Za-z0-9_~.\-]{31,34}+", is_varied, 4),
    _after("azure-secret", "AccountKey=|SharedAccessKey=|accountkey=",
         r"(?:AccountKey|SharedAccessKey|accountkey)=(?P<secret>[A-Za-z0-9+/]{40,88}+={0,2})"),
    _anywhere("azure-secret", "sig=", r"(?<![A-Za-z0-9])sig=(?P<secret>[A-Za-z0-9%]{40,80}+)", is_varied),
    _token("alibaba-key", "LTAI", rf"{_ALNUM}{{16,30}}+"),
    _token("tencent-key", "AKID", rf"{_ALNUM}{{32,40}}+"),
    _token("digitalocean-token", "dop_v1_|doo_v1_|dor_v1_", rf"{_HEX}{{64}}"),
    _token("cloudflare-key", "v1.0-", rf"{_HEX}{{24}}-{_HEX}{{146}}"),
    _token("heroku-key", "HRKU-", rf"{_URLSAFE}{{36,80}}+"),
    _token("flyio-token", "fo1_|fm1a_|fm1r_|fm2_", r"[A-Za-z0-9_+/=\-]{40,2000}+"),
    _token("netlify-token", "nfp_|nfc_|nfo_", rf"{_ALNUM}{{36,60}}+"),
    _token("supabase-key", "sbp_|sb_secret_", rf"{_URLSAFE}{{20,60}}+"),
    _token("planetscale-token", "pscale_tkn_|pscale_pw_|pscale_oauth_", r"[A-Za-z0-9_=.\-]{32,64}+"),
    _token("neon-key", "napi_", r"[a-z0-9]{48,80}+"),
    _token("databricks-token", "dapi", rf"{_HEX}{{32}}(?:-[0-9])?"),
    _token("vault-token", "hvs.|hvb.|hvr.", rf"{_URLSAFE}{{24,300}}+"),
    _around("terraform-token", ".atlasv1.", (14, 14),
            rf"{_START}{_ALNUM}{{14}}\.atlasv1\.{_URLSAFE}{{60,70}}+"),
    _token("pulumi-token", "pul-", rf"{_HEX}{{40}}"),
    _token("doppler-token", "dp.pt.|dp.st.|dp.ct.|dp.sa.|dp.scim.|dp.audit.",
           r"(?:[a-z0-9_\-]{2,35}\.)?[A-Za-z0-9]{40,44}+"),
    _token("1password-token", "ops_eyJ", rf"{_URLSAFE}{{100,4000}}+"),
    _token("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{58}"),
    # Code hosting and packages
    _token("github-token", "ghp_|gho_|ghu_|ghs_|ghr_", r"[A-Za-z0-9_]{36,255}+"),
    _token("github-token", "github_pat_", "[A-Za-z0-9_]{60,255}+"),
    _token("gitlab-token",
           "glpat-|gldt-|glrt-|glcbt-|glptt-|glft-|glsoat-|glimt-|glagent-|gloas-|glffct-|GR1348941",
           r"[A-Za-z0-9_.\-]{20,300}+"),
    _token("bitbucket-token", "ATBB", rf"{_ALNUM}{{32}}"),
    _token("atlassian-token", "ATATT3|ATCTT3|ATOAT3", r"[A-Za-z0-9_=\-]{40,300}+"),
    _token("npm-token", "npm_", rf"{_ALNUM}{{36}}"),
    _token("pypi-token", "pypi-AgE", rf"{_URLSAFE}{{50,300}}+"),
    _token("rubygems-key", "rubygems_", rf"{_HEX}{{48}}"),
    _token("crates-token", "cio", rf"{_ALNUM}{{32}}"),
    _token("nuget-key", "oy2", "[a-z0-9]{43}"),
    _token("docker-token", "dckr_pat_|dckr_oat_", rf"{_URLSAFE}{{24,60}}+"),
    _token("buildkite-token", "bkua_", rf"{_HEX}{{40}}"),
    _token("circleci-token", "CCIPAT_", r"[A-Za-z0-9_]{40,80}+"),
    # Language models and what is around them
    _token("anthropic-key", "sk-ant-", rf"{_URLSAFE}{{32,200}}+"),
    _token("openrouter-key", "sk-or-", rf"{_URLSAFE}{{32,100}}+"),
    _token("langfuse-key", "sk-lf-", r"[0-9a-f\-]{36}"),
    _token("openai-key", "sk-proj-|sk-svcacct-|sk-admin-|sk-None-", rf"{_URLSAFE}{{32,300}}+"),
    _token("openai-key", "sk-", rf"{_ALNUM}{{32,64}}+"),
    _token("huggingface-token", "hf_|api_org_", "[A-Za-z]{34}"),
    _token("groq-key", "gsk_", rf"{_ALNUM}{{48,60}}+"),
    _token("xai-key", "xai-", rf"{_ALNUM}{{60,100}}+"),
    _token("perplexity-key", "pplx-", rf"{_ALNUM}{{40,64}}+"),
    _token("replicate-token", "r8_", rf"{_ALNUM}{{37,40}}+"),
    _token("fireworks-key", "fw_", rf"{_ALNUM}{{22,24}}"),
    _token("cerebras-key", "csk-", "[a-z0-9]{40,60}+"),
    _token("nvidia-key", "nvapi-", rf"{_URLSAFE}{{60,80}}+"),
    _token("langsmith-key", "lsv2_pt_|lsv2_sk_", rf"{_HEX}{{32}}_{_HEX}{{10}}"),
    _token("pinecone-key", "pcsk_", r"[A-Za-z0-9_]{40,90}+"),
    _token("tavily-key", "tvly-", r"[A-Za-z0-9\-]{30,60}+"),
    # Chat and mail
    _token("slack-token", "xoxa-|xoxb-|xoxe-|xoxo-|xoxp-|xoxr-|xoxs-|xoxc-|xoxd-|xapp-|xoxe.xoxp-|xoxe.xoxb-",
           r"[A-Za-z0-9%\-]{20,400}+"),
    _after("webhook", "hooks.slack.com/",
         r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9_/]{24,200}+)"),
    _after("webhook", "/api/webhooks/", r"/api/webhooks/(?P<secret>[0-9]{16,20}/[A-Za-z0-9_\-]{50,90}+)"),
    _after("webhook", ".webhook.office.com/", r"\.webhook\.office\.com/webhookb2/(?P<secret>[^\s\"'<>\\]{60,400}+)"),
    _around("telegram-token", ":AA", (8, 10), rf"{_START}[0-9]{{8,10}}:AA{_URLSAFE}{{33}}(?!{_URLSAFE})"),
    _token("twilio-key", "SK", rf"{_HEX}{{32}}"),
    _token("sendgrid-key", "SG.", rf"{_URLSAFE}{{22}}\.{_URLSAFE}{{43}}"),
    _token("mailgun-key", "key-", rf"{_HEX}{{32}}"),
    _around("mailchimp-key", "-us", (32, 32), rf"{_START}{_HEX}{{32}}-us[0-9]{{1,2}}(?![0-9A-Za-z])"),
    # Payment and shops
    _token("stripe-key", "sk_live_|sk_test_|rk_live_|rk_test_", rf"{_ALNUM}{{16,250}}+"),
    _token("webhook-secret", "whsec_", r"[A-Za-z0-9+/=]{24,120}+"),
    _token("square-token", "sq0atp-|sq0csp-|sq0idp-", rf"{_URLSAFE}{{22,60}}+"),
    _token("square-token", "EAAA", rf"{_URLSAFE}{{60}}(?!{_URLSAFE})"),
    _token("braintree-token", "access_token$production$|access_token$sandbox$", rf"[0-9a-z]{{16}}\${_HEX}{{32}}"),
    _token("shopify-token", "shpat_|shpca_|shppa_|shpss_", "[0-9a-fA-F]{32}"),
    # Watching, planning, drawing
    _token("newrelic-key", "NRAK-", "[A-Z0-9]{27}"),
    _token("sentry-token", "sntryu_", rf"{_HEX}{{64}}"),
    _token("sentry-token", "sntrys_eyJ", r"[A-Za-z0-9+/=_\-]{80,400}+"),
    _token("grafana-token", "glsa_", r"[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    _token("grafana-token", "glc_eyJ", "[A-Za-z0-9+/=]{40,400}+"),
    _token("posthog-key", "phx_", rf"{_ALNUM}{{40,60}}+"),
    _token("linear-key", "lin_api_|lin_oauth_", rf"{_ALNUM}{{40,64}}+"),
    _token("notion-token", "ntn_", rf"{_ALNUM}{{40,60}}+"),
    _token("notion-token", "secret_", rf"{_ALNUM}{{43}}"),
    _token("figma-token", "figd_", rf"{_URLSAFE}{{36,60}}+"),
    _token("dropbox-token", "sl.", rf"{_URLSAFE}{{120,1500}}+"),
    _token("postman-key", "PMAK-", rf"{_HEX}{{24}}-{_HEX}{{34}}"),
    _token("facebook-token", "EAAC|EAAB|EAAG|EAAD", rf"{_ALNUM}{{80,400}}+"),
    # Whatever the issuer
    _anywhere("private-key", "-----begin ", _PRIVATE_KEY, is_key),
    _anywhere("private-key", "---- begin ssh2 ", _SSH2_KEY, is_key),
    _anywhere("private-key", "private-lines: ", _PUTTY_KEY, is_key),
    _token("jwt", "eyJ", rf"{_URLSAFE}{{10,4000}}+\.eyJ{_URLSAFE}{{8,4000}}+\.{_URLSAFE}{{10,4000}}+"),
    _token("jwt", "eyJ", rf"{_URLSAFE}{{10,4000}}+\.(?:{_URLSAFE}{{0,4000}}+\.){{3}}{_URLSAFE}{{10,4000}}+"),
    _anywhere("url-password", "://", _URL_PASSWORD, is_password),
    _anywhere("url-password", "://", r"://(?P<secret>[A-Za-z0-9_\-]{24,300}+)@", is_varied),
    _anywhere("authorization", "bearer ", r"(?i:bearer) {1,3}(?P<secret>[A-Za-z0-9._~+/=:\-]{12,8000}+)", is_bearer),
    _anywhere("authorization", "basic ", r"(?i:basic) {1,3}(?P<secret>[A-Za-z0-9+/]{8,1000}+={0,2})", is_basic),
    _anywhere("url-password", "-u", r"(?<![\w\-])-u[ \t]{0,2}" + _LOGIN, is_login),
    _anywhere("url-password", "--user", r"--user[ \t=]{1,2}" + _LOGIN, is_login),
    _anywhere("password", "sshpass -p", r"(?i:sshpass -p) {0,2}" + _WORD, is_password),
    _anywhere("password", "docker login ", r"(?i:docker login) " + _WORDS_BEFORE + r"-p[ =]{0,2}" + _WORD, is_password),
    _anywhere("password", "mysql", r"(?i:mysql)(?:dump|admin)? " + _WORDS_BEFORE + "-p" + _WORD, is_login),
    _anywhere("password", "login ", r"(?i:login)\s{1,4}+\S{1,200}+\s{1,8}+password\s{1,4}+" + _WORD, is_password),
    _anywhere("password", "identified by ", r"(?i:identified by) {1,2}'(?P<secret>[^'\r\n]{4,200}+)'", is_login),
    _anywhere("cookie", "ookie", _COOKIE, is_cookie),
)  # fmt: skip

FRAMED: Final[tuple[tuple[str, Rule], ...]] = (
    (
        r"\.([A-Za-z0-9_\-]{6}\.(?=[A-Za-z0-9_\-]{27}))",
        _around(
            "discord-token",
            "",
            (23, 28),
            rf"{_START}{_URLSAFE}{{23,28}}\.{_URLSAFE}{{6}}\.{_URLSAFE}{{27,45}}+",
        ),
    ),
    (
        r"\.((?=[0-9a-f]{64}))",
        _around("airtable-token", "", (17, 17), rf"{_START}pat{_ALNUM}{{14}}\.{_HEX}{{64}}{_END}"),
    ),
)
"""Nothing in these is fixed but a dot or two: each is found by a pattern instead of an anchor."""

KINDS: Final = frozenset(
    [*CONTEXTUAL, *(one.kind for one in TYPED), *(one.kind for _, one in FRAMED)]
)

ALPHABETS: Final = {
    "alphanumeric": _ALNUM,
    "base64": "[A-Za-z0-9+/=]",
    "base64url": _URLSAFE,
    "digits": "[0-9]",
    "hex": "[0-9A-Fa-f]",
    "upper": "[A-Z0-9]",
}


def extra_rule(kind: str, prefix: str, characters: str, shortest: int, longest: int) -> Rule:
    """Return the rule for a token of the user's own: a beginning, an alphabet, a length."""
    pattern = f"{_START}{re.escape(prefix)}{ALPHABETS[characters]}{{{shortest},{longest}}}+{_END}"
    return _anywhere(kind, prefix.lower(), pattern, _always)
