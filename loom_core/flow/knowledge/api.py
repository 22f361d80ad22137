"""Knowledge that an API of the house answers from: `retrieve_knowledge_url`."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from loom_core.errors import SourceError
from loom_core.flow.config.models_endpoint import EndpointConfig
from loom_core.flow.expressions import Values
from loom_core.flow.http.answer import status_text
from loom_core.flow.knowledge.source import TENANCY, normal_question
from loom_core.knowledge.sources.remote.json_path import JsonPath
from loom_core.knowledge.sources.remote.result_mapping import read_items
from loom_core.knowledge.text.analysis import content_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.flow.config.models_knowledge import KnowledgeEndpointConfig
    from loom_core.flow.http.caller import EndpointCaller
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.tools.interface import JsonValue

__all__ = ["ApiKnowledge"]

_LONGEST = {"GET": 300, "POST": 2000}
"""Characters of a message that are sent: a Chinese one takes nine in an address, which may have 4,096."""


class ApiKnowledge:
    """Asks the API of a flow file: GET with the parameters in the address, POST with them as JSON.

    Args:
        config: what the file says of it.
        caller: sends the requests.
        seconds: for one question, however long anybody waits for it.
        name: what passages without an address call their source.
    """

    def __init__(
        self,
        config: KnowledgeEndpointConfig,
        caller: EndpointCaller,
        *,
        seconds: float = 10.0,
        name: str = "knowledge",
    ) -> None:
        self._config = config
        self._caller = caller
        self._name = name
        self._endpoint = _endpoint(config, seconds)

    def identity(self, message: str, context: Mapping[str, JsonValue]) -> str:
        """The whole request, and who asks; see `FlowKnowledge.identity`."""
        request = self._caller.preview(self._endpoint, self._values(normal_question(message), context))
        parts = [request.url, sorted(request.headers.items()), request.content.decode("utf-8", "replace")]
        who = [context.get(name) for name in TENANCY]
        text = json.dumps([parts, who], ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()

    async def find(self, message: str, context: Mapping[str, JsonValue]) -> Sequence[KnowledgeItem]:
        """See `FlowKnowledge.find`.

        Raises:
            NetError: there is no answer.
            SourceError: it is a refusal, or has no passages that could be read.
        """
        answer = await self._caller.call(self._endpoint, self._values(message, context))
        if not answer.is_success:
            raise SourceError(
                f"{answer.url} answered with {status_text(answer.status)}.",
                advice="Check `retrieve_knowledge_url` of the flow file.",
            )
        if isinstance(answer.body, str):
            raise SourceError(
                f"{answer.url} answered with what is no JSON.",
                advice="Check that `retrieve_knowledge_url` is the address of an API, not of a page.",
            )
        items = read_items(answer.body or [], self._config.mapping, source=self._name)
        return items[: self._config.limit]

    def _values(self, message: str, context: Mapping[str, JsonValue]) -> Values:
        asked = message if self._config.send == "question" else content_words(message)
        return Values(message=asked[: _LONGEST[self._config.method]], context=context)


def _endpoint(config: KnowledgeEndpointConfig, seconds: float) -> EndpointConfig:
    fields: dict[str, Any] = {}
    for path, value in (config.parameters or {}).items():
        _put(config, fields, path, value)
    _put(config, fields, config.query_field, "{$message}")
    if config.limit_field:
        _put(config, fields, config.limit_field, config.limit)
    is_get = config.method == "GET"
    return EndpointConfig(
        url=config.url,
        method=config.method,
        headers=config.headers,
        query=fields if is_get else {},
        body=None if is_get else fields,
        timeout_seconds=seconds,
        idempotent=True,
        retries=1,
    )


def _put(config: KnowledgeEndpointConfig, fields: dict[str, Any], path: str, value: JsonValue) -> None:
    """Put a value where its path leads: in an address, paths are names as they are."""
    if config.method == "GET":
        fields[path] = value
    else:
        JsonPath.of(path).put(fields, value)
