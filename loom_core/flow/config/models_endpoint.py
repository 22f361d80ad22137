"""Models of an HTTP request in a flow file: address, headers, secrets, and success criteria."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from loom_core.errors import ConfigError
from loom_core.keys import check_reference
from loom_core.knowledge.text.control_characters import CONTROL_CHARACTERS

__all__ = [
    "BODYLESS",
    "MAX_ID",
    "Address",
    "ConfigSection",
    "ContentType",
    "Criterion",
    "EndpointConfig",
    "Headers",
    "Id",
    "Method",
    "Query",
    "Schema",
    "WrittenCriterion",
    "WrittenEndpoint",
    "check_headers",
    "check_query",
    "reference_in",
    "text_as",
]


MAX_ID = 64

_PLACEHOLDER = re.compile(r"\{\$[^{}]*\}")
_FILLED = re.compile(r"(?:[A-Za-z]{1,20} )?(?:\{\$[^{}]*\})+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_REFERENCE = re.compile(r"(?:\S+ )?((?:env|keyring):\S*)")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SECRET_HEADER = re.compile(r"auth(?!or\b)|cookie|key|secret|token|passw", re.IGNORECASE)
_SECRET_QUERY = re.compile(
    r"^key$|(?:api|app|access|private)[_-]?key$|token|secret|passw|^sign(?:ature)?$", re.I
)
_RESERVED_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade"}


class ConfigSection(BaseModel):
    """Base model of all parts of the file: strict, frozen, without unknown keys."""

    # Inputs are not in error messages, as one may be a key in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


def text_as(key: str, section: type[ConfigSection]) -> BeforeValidator:
    """Return a validator that takes a text as a section of the file with this key."""

    def parse(written: object) -> object:
        return {key: written} if isinstance(written, str) else written

    return BeforeValidator(parse, json_schema_input_type=section | str)


def reference_in(text: str) -> str:
    """Return the `env:NAME` or `keyring:NAME` of a value, also after a word (`Bearer env:KEY`), or ""."""
    found = _REFERENCE.fullmatch(text)
    return found[1] if found else ""


def _check_id(text: str) -> str:
    marks = all(each.isalnum() or each in "_-" or unicodedata.category(each)[0] == "M" for each in text)
    if not text or len(text) > MAX_ID or not marks:
        raise ValueError(f"an id is 1 to {MAX_ID} letters and digits of any script, `_` and `-`")
    return text


def _check_address(url: str) -> str:
    if (
        CONTROL_CHARACTERS.search(url)
        or "\\" in url
        or any(each.isspace() for each in _PLACEHOLDER.sub("", url))
    ):
        raise ValueError("an address contains no blanks, backslashes or control characters")
    if url.startswith("//"):
        raise ValueError(
            "an address begins with https:// or http://, or with a single slash after `flow_url`"
        )
    if not _SCHEME.match(url):
        rest = url
    elif not url.lower().startswith(("https://", "http://")):
        raise ValueError("an address begins with https:// or http://")
    else:
        try:
            parts = urlsplit(url)
            host, _port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("this is not an address") from None
        if "{" in parts.netloc or "$" in parts.netloc:
            raise ValueError("a host may not come from a placeholder; write one endpoint for each host")
        if "@" in parts.netloc:
            raise ValueError("an address may not contain a password; use `headers`")
        if not host:
            raise ValueError("the address has no host")
        rest = url[len(parts.scheme) + 3 + len(parts.netloc) :]
    _, _, query = _PLACEHOLDER.sub("{}", rest).partition("?")
    for name, value in parse_qsl(query, keep_blank_values=True):
        if _SECRET_QUERY.search(name) and value and "{}" not in value:
            raise ValueError(f"{name} belongs under `query`, as env:NAME or keyring:NAME")
    return url


def _check_secret_value(name: str, value: str) -> None:
    """Check that a secret is a reference or comes from the run's context."""
    reference = reference_in(value)
    if _FILLED.fullmatch(value):
        return
    try:
        check_reference(reference or value)
    except ConfigError as error:
        raise ValueError(f"{name}: {error}") from None


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    """Validate headers.

    Raises:
        ValueError: a name or a value is invalid, or a secret is given literally.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED_HEADERS:
            raise ValueError(f"{name[:MAX_ID]!r} is a header that cannot be set")
        if any((each < " " and each != "\t") or each == "\x7f" for each in value):
            raise ValueError(f"{name}: the value of a header is one line")
        if _SECRET_HEADER.search(name) or reference_in(value):
            _check_secret_value(name, value)
    return headers


def check_query(query: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
    """Validate query parameters.

    Raises:
        ValueError: a secret is given literally.
    """
    for name, value in (query or {}).items():
        if isinstance(value, str) and (reference_in(value) or (value and _SECRET_QUERY.search(name))):
            _check_secret_value(name, value)
    return query


Id = Annotated[str, AfterValidator(_check_id), Field(min_length=1, max_length=MAX_ID)]
"""Letters and digits of any script, `_` and `-`."""

Address = Annotated[str, AfterValidator(_check_address)]
"""An http(s) address, or a path relative to `flow_url`; placeholders may follow only after the host."""

Headers = Annotated[dict[str, str], AfterValidator(check_headers)]
"""Headers of a request: templates, or references to secrets."""

Query = Annotated[dict[str, JsonValue] | None, AfterValidator(check_query)]
"""Query parameters of a request: templates, or references to secrets."""

Schema = dict[str, JsonValue]
"""A JSON Schema."""


Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
BODYLESS: frozenset[Method] = frozenset({"GET", "HEAD", "DELETE"})
"""Methods that send their parameters in the address."""

ContentType = Literal["application/json", "application/x-www-form-urlencoded", "text/plain"]


class Criterion(ConfigSection):
    """A criterion; a text is a condition of the simple kind."""

    condition: str = Field(
        min_length=1,
        description="`simple`: a condition such as `$statusCode == 200 && $response.body#/code == 0`; "
        "`regex`: an expression that the context is searched for; `jsonpath`: a query (RFC 9535) that finds "
        "something in it.",
    )
    type: Literal["simple", "regex", "jsonpath"] = Field(
        default="simple", description="Type of the condition."
    )
    context: str = Field(
        default="",
        description="Input of `regex` and `jsonpath`, such as `$response.body`; `simple` needs none.",
    )


WrittenCriterion = Annotated[Criterion, text_as("condition", Criterion)]


class EndpointConfig(ConfigSection):
    """An HTTP request; a text such as `"POST /leave"` is its method and address.

    Without `query` and `body`, the inputs are sent, except those that the address or a header uses: with GET,
    HEAD and DELETE as query parameters, else as a JSON object. `"query": {}` sends none.
    """

    url: Address = Field(
        default="",
        description="An http(s) address, or a path relative to `flow_url`; empty: `flow_url` itself. "
        "Placeholders such as `{$inputs.order_id}` may stand behind the host and are percent-encoded.",
    )
    method: Method = Field(default="POST", description="The method.")
    headers: Headers = Field(
        default={},
        repr=False,
        description="Headers; templates, or `env:NAME` or `keyring:NAME`, also behind a word (`Bearer "
        "env:TOKEN`).",
    )
    query: Query = Field(
        default=None,
        repr=False,
        description="Query parameters; templates (a list is repeated, null is left out), or secrets as in "
        "`headers`.",
    )
    body: JsonValue = Field(
        default=None,
        description="The body: any JSON with templates in it; a value that is one placeholder keeps its "
        "type.",
    )
    content_type: ContentType = Field(default="application/json", description="Content type of the body.")
    timeout_seconds: float = Field(
        default=30.0, gt=0, le=600, description="Timeout of the request with its redirects and retries."
    )
    idempotent: bool | None = Field(
        default=None,
        description="Whether sending it twice does what once does, or the server knows `Idempotency-Key`; by "
        "default GET, HEAD, PUT and DELETE are.",
    )
    retries: int = Field(default=2, ge=0, le=10, description="Number of retries after a transient failure.")
    success_criteria: list[WrittenCriterion] = Field(
        default=[],
        alias="successCriteria",
        description="Criteria of success; by default that the status is 2xx.",
    )
    result: str = Field(
        default="$response.body",
        description="The part of the response that is its result, such as `$response.body#/data`.",
    )
    failure: str = Field(
        default="",
        description="What users are told where it fails, such as `{$response.body#/msg}`; by default a "
        "sentence that says whether the host was unreachable, it refused, and so on.",
    )

    @property
    def repeatable(self) -> bool:
        """Whether a request whose outcome is unknown may be sent again."""
        if self.idempotent is None:
            return self.method not in {"POST", "PATCH"}
        return self.idempotent

    @property
    def sends_inputs(self) -> bool:
        """Whether the inputs are sent as parameters, because no others are given."""
        return self.query is None and self.body is None


def _parse_endpoint(written: object) -> object:
    """Expand a text such as `POST /leave`, or an address alone; return an object unchanged."""
    if not isinstance(written, str):
        return written
    method, _, url = written.strip().partition(" ")
    return {"method": method, "url": url.strip()} if url else {"url": method}


WrittenEndpoint = Annotated[
    EndpointConfig, BeforeValidator(_parse_endpoint, json_schema_input_type=EndpointConfig | str)
]
