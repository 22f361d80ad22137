"""Redaction: the one place that decides which secrets must not be written.

Three things are redacted: secrets that this process knows (`keys.register_secret`, and variables of the
environment with the names of secrets), values in the form of a key or a token, and, in logs and messages,
values that are assigned to such names. It cannot promise to find every secret; what it does
find is tested with secrets planted at every entrance (`tests/e2e/test_planted_secrets.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Self, cast
from urllib.parse import unquote

from pydantic import SecretStr

from loom_core.keys import list_known_secrets, secret_forms

__all__ = [
    "SECRET",
    "Redaction",
    "hide_assigned",
    "hide_forms",
    "is_secret_name",
    "item_names",
    "member_names",
    "redact_log_text",
    "secrets_in_environment",
    "without_secrets",
]

SECRET = "[secret]"
"""Placeholder for a secret."""

_SHORTEST_FORM = 8  # characters
_FEW = 100  # number of forms up to which searching for each one is faster
_BEGINNING = 4  # characters that tell forms apart; none is shorter
_SHORTEST = 8  # characters of a variable's value; `1` and `true` are no secrets

_NAME = (
    r"(?:pass(?:wor[dt]|wd|phrase|code)|(?<![a-z])pwd(?![\"']?\s?[=:]\s?[\"']?[~/])|secret|credential"
    r"|authorization|cookie|bearer"
    r"|(?:api|access|account|private|shared|signing|encryption|subscription)[-_ ]?key"
    r"|token(?!s|iz|en)|密码|口令|密钥|私钥|令牌|凭证|验证码)"
)
"""Parts of the names of secrets; `pwd` is also a folder."""

_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_VARIABLE = re.compile(
    r"KEYS?(?![A-Z])|TOKEN(?!IZ)|SECRET|PASS(?:W|PHRASE|CODE)|CREDENTIAL|COOKIE|_(?:AUTH|PASS|PWD|PAT)\Z",
    re.IGNORECASE,
)
_PLACE_VARIABLE = re.compile(r"_(FILE|PATH|DIR|SOCK|URL|URI|NAME|HOST)\Z", re.IGNORECASE)
_PAIR = re.compile(r"\A[\w.-]{1,100}=(.*)\Z", re.DOTALL)  # of `OTEL_EXPORTER_OTLP_HEADERS`
_PART = re.compile(r"(?:\A|[;&?\s])([\w.-]{1,60})=([^;&\s]+)")  # of a connection string, or a query

# Up to the last `@` before the path; a password with a `/` in it is one, too, but a port is none.
_PASSWORD = r"(?:[^\s/\"'<>]{1,500}|(?!\d{1,5}[/?#]|[{$<])[^\s@\"'<>]{1,500})(?=@)"
_ALONE = r"(?=[a-zA-Z_.-]{0,200}\d|[^\s/@]{20})[^\s/@:?#]{8,200}(?=@)"  # a token; `git` is none
_IN_ADDRESS = re.compile(rf"://(?:[^\s/@:\[]{{0,200}}:({_PASSWORD})|({_ALONE}))")

_START = r"(?a)(?:\b|(?<=\\[nrt]))"
"""The beginning of a word, also behind Chinese, and behind a line's end that is written as in JSON."""

# Each is bounded, or anchored in something rare: texts come from anywhere, and may be long.
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
        SECRET,
    ),
    (re.compile(_START + r"sk-(?=[\w-]{0,80}(?:\d|\w{12}))[\w-]{16,}"), SECRET),  # of model vendors
    (re.compile(_START + r"(?:pk|rk|hf|npm|sk)[-_](?=[A-Za-z_-]{0,40}\d)[\w-]{16,}"), SECRET),
    (
        re.compile(
            _START + r"(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,})"
        ),
        SECRET,
    ),
    (re.compile(_START + r"(?:(?:AKIA|ASIA)[0-9A-Z]{16}\b|AIza[\w-]{30,})"), SECRET),
    (re.compile(_START + r"(?:(?:gsk_|xai-|pplx-)(?=[A-Za-z_-]{0,40}\d)|ya29\.)[\w-]{20,}"), SECRET),
    (re.compile(_START + r"[0-9a-f]{32}\.(?=[A-Za-z]{0,15}[A-Z\d])[A-Za-z\d]{16}\b"), SECRET),  # of Zhipu
    (re.compile(_START + r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), SECRET),  # JSON web tokens
    (
        re.compile(r"(?ai)\b(bearer|basic)(\s{1,3})(?=[\w~+-]{0,80}(?:[\d/=]|\.\w))[\w.~+/=-]{8,}"),
        rf"\1\2{SECRET}",
    ),
    (re.compile(rf"(?ai)\b([a-z][a-z0-9+.-]{{0,30}}://)[^\s/@:\[]{{0,200}}:{_PASSWORD}"), rf"\1{SECRET}"),
    (re.compile(rf"(?ai)\b([a-z][a-z0-9+.-]{{0,30}}://){_ALONE}"), rf"\1{SECRET}"),
)
_QUOTE = r"\\{0,3}[\"']?"  # also within a text that is a text of JSON itself
_SET_TO = rf"{_QUOTE}\s{{0,3}}[=:：]\s{{0,3}}b?{_QUOTE}"
_NEXT = (  # of a pair, as `("x-token", b"…")` or `"name": "x-token", "value": "…"`
    r"\\{0,3}[\"']\s{0,3},\s{0,3}(?:\\{0,3}[\"']value\\{0,3}[\"']\s{0,3}:\s{0,3})?b?\\{0,3}[\"']"
)
_MORE = r"(?:s(?=[\"'])|[-_ ]?(?:access[-_ ]?)?key|[-_ ]?(?:value|string))?"  # `secretKey`, `token_value`
_VALUE = r"(?=[^\s\"'&,;，。；\\]{0,80}\d)[^\s\"'&,;，。；\\]{6,}"
_ASSIGNED = (
    re.compile(rf"(?ai)(authorization{_SET_TO}(?:\w{{1,20}} )?+)(?!\[)[^\s\"',;\\]{{4,}}"),
    re.compile(
        rf"(?ai)(cookie(?:{_SET_TO}|{_NEXT}))(?=[\w!#$%&*+.^`|~-]{{1,100}}=)"
        r"[^\s\"',;，。；\\]++(?:;\s{0,3}[^\s\"',;，。；\\]++)*+"
    ),
    re.compile(rf"(?ai)({_NAME}{_MORE}(?:{_SET_TO}|{_NEXT}))(?!env:|keyring:|\[){_VALUE}"),
    re.compile(
        rf"(?ai)((?<![\w-])--?(?=[a-z])[\w-]{{0,40}}?{_NAME}{_MORE}[= ]{_QUOTE})(?!env:|keyring:|\[){_VALUE}"
    ),
    re.compile(
        r"(?ai)([?&](?:[\w.-]{0,40}sig(?:nature)?|[\w.-]{0,40}key|code|auth)=)"
        r"(?=[^\s\"'&,;#，。；\\]{0,80}\d)[^\s\"'&,;#，。；\\]{8,}"
    ),
)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Redactor of the secrets that are known at one moment, for many texts.

    Attributes:
        known: the encoded forms of known secrets.
        assigned: whether the value in `token=…` is redacted: for logs and messages; in a program it is code.
    """

    known: tuple[str, ...]
    assigned: bool = False

    @classmethod
    def now(cls, secrets: Iterable[SecretStr] = (), *, assigned: bool = False) -> Self:
        """Create a redactor of all secrets that this process knows now.

        Args:
            secrets: further secrets.
            assigned: see the attribute.
        """
        return cls(secret_forms((*secrets, *list_known_secrets(), *secrets_in_environment())), assigned)

    def text(self, text: str) -> str:
        """Redact known secrets, and values in the form of a secret."""
        text = hide_forms(self.identifier(text))
        return hide_assigned(text) if self.assigned else text

    def identifier(self, text: str) -> str:
        """Redact only the known secrets in an identifier.

        One such as `token:3f2a…` or `oauth:https://issuer:client:ada@example.org` looks like a secret.
        """
        for form in _possible(self.known, text):
            text = text.replace(form, SECRET)
        return text

    def value(self, value: object) -> object:
        """Redact all texts of a JSON value, including the names of members."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            members = cast("Mapping[object, object]", value).items()
            return {
                self.value(key): self._redact_named(name, each)
                for (key, each), name in zip(members, member_names(members), strict=True)
            }
        if isinstance(value, list | tuple):
            items = cast("list[object]", value)
            return [
                self._redact_named(name, each) for name, each in zip(item_names(items), items, strict=True)
            ]
        return value

    def _redact_named(self, name: str, value: object) -> object:
        if self.assigned and isinstance(value, str) and is_secret_name(name):
            return SECRET if value else value
        return self.value(value)


def without_secrets(text: str) -> str:
    """Redact the known secrets of this process, and values in the form of a secret."""
    return Redaction.now().text(text)


def redact_log_text(text: str) -> str:
    """Redact a log line or message, including assignments such as `token=…`."""
    return Redaction.now(assigned=True).text(text)


def hide_forms(text: str) -> str:
    """Redact values in the form of a key or a token."""
    if len(text) >= _SHORTEST_FORM:
        for pattern, instead in _FORMS:
            text = pattern.sub(instead, text)
    return text


def hide_assigned(text: str) -> str:
    """Redact values that are assigned to names of secrets, such as `token=…`."""
    if len(text) >= _SHORTEST_FORM:
        for pattern in _ASSIGNED:
            text = pattern.sub(rf"\1{SECRET}", text)
    return text


def is_secret_name(name: str) -> bool:
    """Return whether a name, such as `apiKey`, is that of a secret."""
    return _SECRET_NAME.search(_HUMP.sub("_", name)) is not None


def member_names(members: Collection[tuple[object, object]]) -> list[str]:
    """Return the name of each member of an object: its key, or the `name` next to a `value`."""
    called = [key if isinstance(key, str) else "" for key, _ in members]
    if "value" in called:
        title = next((each for key, each in members if key in {"name", "key"}), None)
        if isinstance(title, str):
            called[called.index("value")] = title
    return called


def item_names(items: Sequence[object]) -> list[str]:
    """Return the name of each item of a list: the option before it, or the first of a pair; empty if nothing.

    Two plain words are no pair: a list of names may have two.
    """
    called = [""] * len(items)
    for place, (each, following) in enumerate(pairwise(items), 1):
        if isinstance(each, str) and isinstance(following, str):
            is_option = each.startswith("-") and not following.startswith("-")
            if is_option or (len(items) == 2 and not following.isalpha()):
                called[place] = each
    return called


def secrets_in_environment(environment: Mapping[str, str] | None = None) -> list[SecretStr]:
    """Collect the secrets of the environment: by the names of variables, and passwords in addresses.

    Args:
        environment: variables; by default those of the process, as they are now.
    """
    if environment is None:
        return _environment_secrets.collect()
    return [secret for name, value in environment.items() for secret in _secrets_of(name, value)]


class _EnvironmentSecrets:
    """Secrets of this process's environment, collected again once a variable has changed."""

    def __init__(self) -> None:
        self._seen: tuple[Mapping[object, object], list[SecretStr]] = ({}, [])

    def collect(self) -> list[SecretStr]:
        # The variables as the system has them: comparing these costs a hundredth of decoding all of them.
        variables: Mapping[object, object] = vars(os.environ).get("_data", os.environ)
        seen, secrets = self._seen
        if variables != seen:
            seen, secrets = dict(variables), secrets_in_environment(dict(os.environ))
            self._seen = seen, secrets
        return secrets


_environment_secrets = _EnvironmentSecrets()


def _possible(forms: tuple[str, ...], text: str) -> Iterable[str]:
    """Return the forms that may be in a text, in their order; a prefilter speeds up many forms."""
    if len(forms) <= _FEW:
        return forms
    places = _by_beginning(forms)
    begun = places.keys() & {text[start : start + _BEGINNING] for start in range(len(text))}
    return [forms[place] for place in sorted(place for each in begun for place in places[each])]


@lru_cache(maxsize=4)
def _by_beginning(forms: tuple[str, ...]) -> Mapping[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, form in enumerate(forms):
        places.setdefault(form[:_BEGINNING], []).append(place)
    return places


@lru_cache(maxsize=1000)
def _secrets_of(name: str, value: str) -> tuple[SecretStr, ...]:
    found: list[str] = []
    if "://" in value:
        inside = [match[1] or match[2] for match in _IN_ADDRESS.finditer(value)]
        found += [each for text in inside for each in (text, unquote(text))]
    if name.endswith("_HEADERS"):
        pairs = [_PAIR.match(each.strip()) for each in value.split(",")]
        found += [text for pair in pairs if pair for text in (pair[1], unquote(pair[1]).rpartition(" ")[2])]
    else:
        parts = [part for part in _PART.finditer(value) if is_secret_name(f"{part[1]}={part[2][0]}")]
        found += [text for part in parts if not _is_place(part[2]) for text in (part[2], unquote(part[2]))]
        if _SECRET_VARIABLE.search(name) and not _PLACE_VARIABLE.search(name) and not _is_place(value):
            found += [value.strip(), *re.split(r"[\s,;]+", value.strip())]
    return tuple(SecretStr(each) for each in dict.fromkeys(found) if len(each) >= _SHORTEST)


def _is_place(value: str) -> bool:
    """Return whether a value is the path of a file: that is no secret, and its content is elsewhere."""
    try:
        return value.startswith(("/", "~", ".")) and Path(value).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
