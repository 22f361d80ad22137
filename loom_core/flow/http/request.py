"""Requests of a flow file with filled placeholders, and when they may be retried."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlencode, urlsplit

import anyio

from loom_core.errors import ConfigError, InvalidInputError, NetError
from loom_core.flow.config.models_endpoint import BODYLESS, reference_in
from loom_core.flow.expressions import expressions_in, fill, fill_header, fill_url, text_of
from loom_core.net.headers import header_problem

if TYPE_CHECKING:
    from loom_core.flow.config.models_endpoint import EndpointConfig
    from loom_core.flow.expressions import ExpressionValues
    from loom_core.net.client import Method
    from loom_core.tools.interface import JsonValue

__all__ = [
    "Attempts",
    "FilledRequest",
    "Reveal",
    "build_request",
    "is_lost",
    "is_retryable",
    "is_transient_status",
    "may_be_done",
    "request_key",
    "resolve_url",
    "secret_texts",
]


Reveal = Callable[[str], str]
"""Callback that replaces the reference in a text by its secret."""

_ACCEPTED = "application/json, text/*;q=0.9, */*;q=0.1"
_CLIMBS = frozenset({".", ".."})
_SEPARATORS = re.compile(r"[/\\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class FilledRequest:
    """A request ready to be sent; its address and headers may contain secrets."""

    method: Method
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    has_secrets: bool

    @property
    def place(self) -> str:
        """Host and port of the address."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or _DEFAULT_PORTS[parts.scheme]}"


def resolve_url(url: str, base: str) -> str:
    """Resolve an address against `flow_url`, unless it is absolute.

    Raises:
        ConfigError: it is relative, and there is no `flow_url`.
    """
    if url.lower().startswith(("http://", "https://")):
        return url
    if not base:
        raise ConfigError(
            f"{url[:80]!r} is relative to `flow_url`, which is not set.",
            advice='Write "flow_url": "https://…", or an absolute address.',
        )
    address, mark, query = base.partition("?")
    if url and not url.startswith("?"):
        address = f"{address.rstrip('/')}/{url.removeprefix('/')}"
    else:
        address += url
    return f"{address}{'&' if '?' in address else mark}{query}" if query else address


def build_request(
    endpoint: EndpointConfig, values: ExpressionValues, *, base: str, revealed: Reveal
) -> FilledRequest:
    """Build the request of an endpoint from values.

    `revealed` is called only with texts of the file itself.

    Raises:
        InvalidInputError: a value is invalid in its place.
        ConfigError: a secret does not exist, there is no address, or a placeholder is invalid.
    """
    url = _check_path(fill_url(resolve_url(endpoint.url, base), values))
    headers = {"Accept": _ACCEPTED} | _headers(endpoint.headers, values, revealed)
    query: Mapping[str, JsonValue] = {}
    body: JsonValue = None
    if not endpoint.sends_inputs:
        query = {
            name: revealed(each) if isinstance(each, str) and reference_in(each) else fill(each, values)
            for name, each in (endpoint.query or {}).items()
        }
        body = _fill_body(endpoint.body, values, revealed)
    elif endpoint.method in BODYLESS:
        query = _remaining_inputs(endpoint, values)
    else:
        body = _remaining_inputs(endpoint, values)
    content = _content(endpoint, body)
    if content and not any(name.lower() == "content-type" for name in headers):
        charset = "" if endpoint.content_type == "application/json" else "; charset=utf-8"
        headers["Content-Type"] = f"{endpoint.content_type}{charset}"
    has_secrets = any(map(reference_in, secret_texts(endpoint)))
    return FilledRequest(endpoint.method, _with_query(url, query), headers, content, has_secrets)


def _check_path(url: str) -> str:
    """Check that an address's path has no traversal, also for servers that decode it first.

    Raises:
        InvalidInputError: a value contains a path traversal or a control character.
    """
    path = unquote(urlsplit(url).path)
    if _CLIMBS.intersection(_SEPARATORS.split(path)) or _CONTROL.search(path):
        raise InvalidInputError(
            "The address is unsafe: a value in it has `..` or a control character.",
            advice="Give a plain value.",
        )
    return url


def secret_texts(endpoint: EndpointConfig) -> list[str]:
    """Return the texts in which an endpoint may refer to secrets."""
    values = (endpoint.query or {}).values()
    in_query = (each for each in values if isinstance(each, str))
    return [*endpoint.headers.values(), *in_query, *_texts(endpoint.body)]


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts(each)


def _fill_body(template: JsonValue, values: ExpressionValues, revealed: Reveal) -> JsonValue:
    """Fill a body template, and insert secrets where it refers to them.

    Only parameters of the knowledge API may refer to secrets in a body.
    """
    if not any(map(reference_in, _texts(template))):
        return fill(template, values)
    if isinstance(template, str):
        return revealed(template)
    if isinstance(template, Mapping):
        members: dict[str, JsonValue] = {}
        for name, each in template.items():
            if any(map(reference_in, _texts(each))):
                members[name] = _fill_body(each, values, revealed)
            elif isinstance(filled := fill({name: each}, values), Mapping):  # left out if it is missing
                members |= filled
        return members
    if isinstance(template, Sequence):
        return [_fill_body(each, values, revealed) for each in template]
    return template


def _remaining_inputs(endpoint: EndpointConfig, values: ExpressionValues) -> dict[str, JsonValue]:
    """Return the inputs that neither the address nor a header uses."""
    named = {
        each.path[0]
        for text in (endpoint.url, *endpoint.headers.values())
        for each in expressions_in(text)
        if each.root == "inputs" and each.path
    }
    return {name: value for name, value in values.inputs.items() if name not in named}


def _headers(written: Mapping[str, str], values: ExpressionValues, revealed: Reveal) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, text in written.items():
        # Only texts of the file itself are references: an input `env:NAME` is plain text.
        value = revealed(text) if reference_in(text) else fill_header(text, values)
        if value is None:
            continue
        if problem := header_problem(name, value):
            raise InvalidInputError(
                f"The header {name[:64]!r} cannot be sent: {problem}.",
                advice="Send such a text in the body.",
            )
        headers[name] = value
    return headers


def _with_query(url: str, parameters: Mapping[str, JsonValue]) -> str:
    pairs = _pairs(parameters)
    if not pairs:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs, quote_via=quote, errors='replace')}"


def _pairs(parameters: Mapping[str, JsonValue]) -> list[tuple[str, str]]:
    """Return pairs of names and texts; a list is repeated, and null is left out."""
    return [
        (name, text_of(each))
        for name, value in parameters.items()
        for each in (value if isinstance(value, list) else [value])
        if each is not None
    ]


def _content(endpoint: EndpointConfig, body: JsonValue) -> bytes:
    if body is None:
        return b""
    if endpoint.content_type == "application/x-www-form-urlencoded" and isinstance(body, dict):
        return urlencode(_pairs(body), errors="replace").encode()
    if endpoint.content_type == "application/json":
        try:
            return json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        except ValueError:
            raise InvalidInputError(
                "The body contains a number that JSON does not support.", advice="Give a plain number."
            ) from None
    return text_of(body).encode("utf-8", "replace")


_PASSING = frozenset({408, 425, 429})
_LASTING = frozenset({501, 505, 506, 507, 508, 510, 511})
_MAX_KEY_LENGTH = 200
_UNANSWERED = frozenset({"interrupted", "timeout"})
_GATEWAY = frozenset({408, 502, 504})


def is_transient_status(status: int) -> bool:
    """Return whether a status is transient, so that the request may succeed later."""
    return status in _PASSING or (500 <= status < 600 and status not in _LASTING)


def is_lost(outcome: NetError | int) -> bool:
    """Return whether a request's outcome is unknown: no response, an unreadable one, or only a gateway's."""
    if isinstance(outcome, NetError):
        return outcome.failure in _UNANSWERED or outcome.failure == "unusable"
    return outcome in _GATEWAY


def may_be_done(outcome: NetError | int) -> bool:
    """Return whether a request may have been carried out: it is lost, redirected, or the server failed."""
    if isinstance(outcome, NetError):
        return is_lost(outcome)
    return outcome == HTTPStatus.REQUEST_TIMEOUT or 300 <= outcome < 400 or 500 <= outcome < 600


def is_retryable(outcome: NetError | int, *, repeatable: bool) -> bool:
    """Return whether a request may be retried after an error or a status.

    A request that was never sent may always be retried. One that may have arrived is retried only if it is
    idempotent.
    """
    if isinstance(outcome, NetError):
        if outcome.failure == "connection":
            return True
        return repeatable and outcome.failure in _UNANSWERED
    return repeatable and is_transient_status(outcome)


def request_key(run_id: str, step_id: str) -> str:
    """Return the `Idempotency-Key` of a request: `{run}:{step}`, the same for all attempts.

    Ids in other scripts are percent-encoded, as a header is ASCII; a long key ends in a digest.
    """
    key = f"{quote(run_id, safe='')}:{quote(step_id, safe='/#', errors='replace')}"
    if len(key) <= _MAX_KEY_LENGTH:
        return key
    digest = hashlib.sha256(f"{run_id}:{step_id}".encode("utf-8", "replace")).hexdigest()
    return f"{key[: _MAX_KEY_LENGTH - len(digest) - 1]}~{digest}"


@dataclass(slots=True)
class Attempts:
    """Attempts to send a request.

    Attributes:
        endpoint: the endpoint.
        until: deadline, as `anyio.current_time`.
        made: attempts that have started.
        maybe_done: whether one may have been carried out although none has succeeded.
    """

    endpoint: EndpointConfig
    until: float
    made: int = 0
    maybe_done: bool = False

    @property
    def left(self) -> float:
        """Remaining seconds; may be negative."""
        return self.until - anyio.current_time()

    def note(self, outcome: NetError | int) -> None:
        """Record the outcome of an attempt: an error or a status."""
        self.maybe_done = self.maybe_done or may_be_done(outcome)

    def with_attempts(self, last: NetError) -> NetError:
        """Return the last error, with the number of attempts and whether one may have been carried out."""
        times = f" It was tried {self.made} times." if self.made > 1 else ""
        failure = "interrupted" if self.maybe_done and not is_lost(last) else last.failure
        return NetError(f"{last.message}{times}", advice=last.advice, failure=failure)
