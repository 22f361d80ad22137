"""HTTP API as a source: a search service, a third-party knowledge base."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote, urlencode

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field, field_validator

from loom_core.errors import InvalidInputError, SourceError
from loom_core.json_repair import replace_lone_surrogates
from loom_core.keys import check_reference, resolve
from loom_core.knowledge.sources.named_source import NamedSource
from loom_core.knowledge.sources.remote.json_path import JsonPath, PathSetting
from loom_core.knowledge.sources.remote.recent_items import RecentItems
from loom_core.knowledge.sources.remote.result_mapping import ResultMapping, read_item, read_items
from loom_core.knowledge.text.analysis import content_words
from loom_core.knowledge.validation import check_limit, check_question
from loom_core.net import GuardedClient, NetPolicy, redact_url

if TYPE_CHECKING:
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.net import HttpResponse
    from loom_core.tools.interface import JsonValue

__all__ = ["HTTPKnowledgeBase", "HTTPKnowledgeConfig"]

_REFERENCE = re.compile(r"(?:env|keyring):\S*")
_MAX_LIMIT = 100
_MAX_ANSWER = 8 << 20  # bytes
_PLACE = "{id}"
_WRONG_PLACE = {
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.GONE,
    HTTPStatus.NOT_IMPLEMENTED,
}


class HTTPKnowledgeConfig(BaseModel):
    """Configuration of an HTTP search API.

    Fields are named by paths (`JsonPath`): `query`, or `retrieval_setting.top_k` for one inside another. For
    GET they become query parameters, whose names are the paths as they are; for POST a JSON object.

    A value of `headers` or `fields` may be `env:NAME` or `keyring:NAME`, which is replaced by the secret when
    a question is asked; in a header words may precede it (`Bearer env:KB_KEY`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(description="URL of the API.")
    method: Literal["GET", "POST"] = Field(
        default="GET", description="`GET`: fields become query parameters; `POST`: a JSON object."
    )
    query_field: PathSetting = Field(
        default="query", min_length=1, description="Field of the question, or its path: `search.text`."
    )
    send: Literal["question", "keywords"] = Field(
        default="question",
        description="Its value: the `question`, or `keywords`: its content words with spaces.",
    )
    limit_field: PathSetting = Field(default="", description="Field for the number of passages.")
    filters: Mapping[str, str] = Field(
        default={}, description="Filters that it supports: name to the field that the value is put in."
    )
    fields: Mapping[str, Any] = Field(
        default={}, repr=False, description="Further fields, the same for every query: chatbotId, tenantId…"
    )
    headers: Mapping[str, str] = Field(default={}, repr=False, description="Headers of the request.")
    document_url: str = Field(
        default="",
        description=(
            "URL of a document, with `{id}` for its id; empty: only recently found documents can be read."
        ),
    )
    mapping: ResultMapping = Field(default=ResultMapping(), description="Where the parts of the answer are.")
    allow: tuple[str, ...] = Field(
        default=(),
        description="Private hosts and networks that may be requested, such as `10.1.0.0/16`.",
    )
    seconds: float = Field(default=10.0, gt=0, le=300, description="Timeout of a request.")

    @field_validator("document_url")
    @classmethod
    def _check_document_url(cls, url: str) -> str:
        if url and _PLACE not in url:
            raise ValueError(f"Write {_PLACE} where the id belongs: https://kb.example/documents/{_PLACE}.")
        return url


class HTTPKnowledgeBase(NamedSource):
    """A remote knowledge API as a source.

    Requests go through the SSRF guard, which allows the public internet, and the hosts and networks in
    `allow`. Recent items are cached for `get_by_id`, for APIs that cannot look up an id.

    Args:
        config: configuration of the API.
        name: its name among other sources.
        description: of its content, in one sentence.
        search_hints: what to search in it for.
        client: the HTTP client to use, instead of one made from `config`.

    Raises:
        ConfigError: an allowed host or network, or a reference to a secret, is invalid.
        NetError: an address is invalid.
    """

    def __init__(
        self,
        config: HTTPKnowledgeConfig,
        *,
        name: str,
        description: str = "",
        search_hints: Sequence[str] = (),
        client: GuardedClient | None = None,
    ) -> None:
        super().__init__(name, description=description, search_hints=search_hints)
        policy = replace(
            NetPolicy.allowing(config.allow),
            max_bytes=_MAX_ANSWER,
            total_seconds=config.seconds,
            setting="`allow` of the source",
            smaller="Have the API give fewer or shorter passages; `limit_field` tells it how many.",
        )
        self._config = config
        self._client = client or GuardedClient(policy)
        self._recent = RecentItems()
        self._secrets: dict[str, str] = {}
        for reference in _references(config):
            check_reference(reference)
        for url in (config.url, config.document_url.replace(_PLACE, "0")):
            if url:
                self._client.check(url)

    @property
    def supported_filters(self) -> Sequence[str]:
        """The filters that a field is configured for."""
        return tuple(self._config.filters)

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        """See `KnowledgeBaseProvider.query`.

        Raises:
            InvalidInputError: as there.
            ConfigError: a secret cannot be found.
            NetError: the SSRF guard forbids the request, or the API does not answer in time.
            SourceError: the API refuses, or its answer cannot be read.
        """
        check_question(query)
        check_limit(limit, most=_MAX_LIMIT)
        config = self._config
        fields = await self._fields(query, limit, filters or {})
        if config.method == "GET":
            url = _with_parameters(config.url, fields)
            response = await self._client.request("GET", url, headers=await self._headers())
        else:
            response = await self._client.request(
                "POST",
                config.url,
                headers={"content-type": "application/json", **await self._headers()},
                content=json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"),
            )
        items = read_items(self._read(response), config.mapping, source=self._name)[:limit]
        self._recent.add(items)
        return items

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        """See `KnowledgeBaseProvider.get_by_id`; errors as those of `query`."""
        template = self._config.document_url
        if not template:
            return self._recent.get(knowledge_id)
        url = template.replace(_PLACE, quote(knowledge_id, safe=""))
        response = await self._client.request("GET", url, headers=await self._headers())
        if response.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
            return self._recent.get(knowledge_id)
        item = read_item(self._read(response), self._config.mapping, source=self._name)
        return None if item is None else replace(item, id=knowledge_id)

    async def _fields(self, query: str, limit: int, filters: Mapping[str, Any]) -> dict[str, Any]:
        config = self._config
        unknown = next((name for name in filters if name not in config.filters), None)
        if unknown is not None:
            known = ", ".join(config.filters)
            raise InvalidInputError(
                f"There is no filter {unknown!r}.",
                advice=f"There are: {known}." if known else "Leave filters out here: this source has none.",
            )
        fields: dict[str, Any] = {}
        for path, value in config.fields.items():
            JsonPath.of(path).assign(
                fields, await self._resolve_secret(value) if isinstance(value, str) else value
            )
        asked = query if config.send == "question" else content_words(query)
        JsonPath.of(config.query_field).assign(fields, asked)
        if config.limit_field:
            JsonPath.of(config.limit_field).assign(fields, limit)
        for name, value in filters.items():
            JsonPath.of(config.filters[name]).assign(fields, value)
        return fields

    async def _headers(self) -> dict[str, str]:
        sent = {"accept": "application/json"}
        for name, value in self._config.headers.items():
            sent[name.lower()] = await self._resolve_secret(value)
        return sent

    async def _resolve_secret(self, value: str) -> str:
        """Replace a secret reference at the end of a value by the secret."""
        reference = _reference(value)
        if not reference:
            return value
        if reference not in self._secrets:  # a keyring may take a second, or ask the user
            secret = await to_thread.run_sync(resolve, reference)
            self._secrets[reference] = secret.get_secret_value()
        return value.removesuffix(reference) + self._secrets[reference]

    def _read(self, response: HttpResponse) -> JsonValue:
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            raise SourceError(
                f"{redact_url(response.url)} answered with {_status(response.status)}.",
                advice=_advice(response.status),
            )
        if not response.body.strip():
            return []
        try:
            return json.loads(replace_lone_surrogates(response.body).decode("utf-8-sig"))
        except (ValueError, RecursionError):
            raise SourceError(
                f"{redact_url(response.url)} did not answer with JSON.",
                advice="Check that the address is that of the API, not of a page.",
            ) from None


def _references(config: HTTPKnowledgeConfig) -> list[str]:
    values = [*config.headers.values(), *(v for v in config.fields.values() if isinstance(v, str))]
    return [reference for value in values if (reference := _reference(value))]


def _reference(value: str) -> str:
    """Return the secret reference that a value is, or that is its last word; empty if there is none."""
    last = value.rsplit(" ", 1)[-1]
    return last if _REFERENCE.fullmatch(last) else ""


def _with_parameters(url: str, fields: Mapping[str, Any]) -> str:
    parameters = [
        (path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for path, given in _flat(fields)
        for value in (cast("list[object]", given) if isinstance(given, list) else [given])
    ]
    base, mark, fragment = url.partition("#")
    joint = "&" if "?" in base else "?"
    return f"{base}{joint}{urlencode(parameters, errors='replace')}{mark}{fragment}"


def _flat(fields: Mapping[str, object], above: str = "") -> list[tuple[str, object]]:
    """Flatten an object to fields by dotted paths."""
    found: list[tuple[str, object]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            found += _flat(cast("dict[str, object]", value), f"{above}{name}.")
        else:
            found.append((f"{above}{name}", value))
    return found


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _advice(status: int) -> str:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return "Check the key in the source's `headers` or `fields`."
    if status in _WRONG_PLACE:
        return "Check the source's `url` and `method`."
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return "Give the address that it redirects to."
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "Ask again later."
    return "Check the source's fields against the API's documentation."
