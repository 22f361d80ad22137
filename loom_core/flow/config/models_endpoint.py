"""An HTTP request as the file writes it, and how its answer is judged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue

from loom_core.flow.config.models_values import Address, Headers, Query, Section

__all__ = [
    "BODYLESS",
    "ContentType",
    "Criterion",
    "EndpointConfig",
    "Method",
    "WrittenCriterion",
    "WrittenEndpoint",
]

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
BODYLESS: frozenset[Method] = frozenset({"GET", "HEAD", "DELETE"})
"""Methods that send their parameters in the address."""

ContentType = Literal["application/json", "application/x-www-form-urlencoded", "text/plain"]


class Criterion(Section):
    """Something that has to hold; a text is a condition of the simple kind."""

    condition: str = Field(
        min_length=1,
        description="`simple`: a condition such as `$statusCode == 200 && $response.body#/code == 0`; "
        "`regex`: an expression that the context is searched for; `jsonpath`: a query (RFC 9535) that finds "
        "something in it.",
    )
    type: Literal["simple", "regex", "jsonpath"] = Field(default="simple", description="How it is meant.")
    context: str = Field(
        default="",
        description="What `regex` and `jsonpath` look at, such as `$response.body`; `simple` needs none.",
    )


def _criterion(written: object) -> object:
    return {"condition": written} if isinstance(written, str) else written


WrittenCriterion = Annotated[Criterion, BeforeValidator(_criterion, json_schema_input_type=Criterion | str)]


class EndpointConfig(Section):
    """An HTTP request; a text such as `"POST /leave"` is its method and address.

    If neither `query` nor `body` is written, the inputs are sent, except those that the address or a header
    names: with GET, HEAD and DELETE as query parameters, else as a JSON object. `"query": {}` sends none.
    """

    url: Address = Field(
        default="",
        description="An http(s) address, or a path that is put behind `flow_url`; empty: `flow_url` itself. "
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
        description="What is sent: any JSON with templates in it; a value that is one placeholder keeps its "
        "type.",
    )
    content_type: ContentType = Field(default="application/json", description="How the body is sent.")
    timeout_seconds: float = Field(
        default=30.0, gt=0, le=600, description="For the request with its redirects and retries."
    )
    idempotent: bool | None = Field(
        default=None,
        description="Whether sending it twice does what once does, or the server knows `Idempotency-Key`; by "
        "default GET, HEAD, PUT and DELETE are.",
    )
    retries: int = Field(
        default=2, ge=0, le=10, description="How often it is sent again after a failure that passes."
    )
    success_criteria: list[WrittenCriterion] = Field(
        default=[],
        alias="successCriteria",
        description="What has to hold for it to have succeeded; by default that the status is 2xx.",
    )
    result: str = Field(
        default="$response.body",
        description="Which part of the answer is its result, such as `$response.body#/data`.",
    )
    failure: str = Field(
        default="",
        description="What users are told where it fails, such as `{$response.body#/msg}`; by default a "
        "sentence that says whether nobody was reached, it was refused, and so on.",
    )

    @property
    def repeatable(self) -> bool:
        """Whether a request of which it is not known if it arrived may be sent again."""
        if self.idempotent is None:
            return self.method not in {"POST", "PATCH"}
        return self.idempotent

    @property
    def sends_inputs(self) -> bool:
        """Whether the inputs are what is sent, as nothing else is written."""
        return self.query is None and self.body is None


def _endpoint(written: object) -> object:
    """`POST /leave`, or an address alone; an object as it is."""
    if not isinstance(written, str):
        return written
    method, _, url = written.strip().partition(" ")
    return {"method": method, "url": url.strip()} if url else {"url": method}


WrittenEndpoint = Annotated[
    EndpointConfig, BeforeValidator(_endpoint, json_schema_input_type=EndpointConfig | str)
]
