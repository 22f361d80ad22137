"""`api`: a rerank endpoint over HTTP, in the common form of Cohere, Jina, Voyage, vLLM and others."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Literal

import anyio
from anyio import to_thread
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from loom_core.errors import ConfigError, LLMError
from loom_core.keys import check_key, check_variable, find_key, redact
from loom_core.knowledge.retrieval.rerankers.ranking import logistic, order_by_relevance, text_with_headings
from loom_core.knowledge.validation import require_positive
from loom_core.net.url import is_base_url
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    import httpx2
    from pydantic import SecretStr

    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["APIReranker"]

_PAUSE = 0.25
"""Seconds before a request is sent again where the server does not say how long to wait."""

_BUSY = frozenset({429, 503})

_ADVICE = {
    400: "Check the model's name, and whether the endpoint takes the field top_n or top_k (limit_field).",
    401: "Check the API key.",
    403: "Check the API key and what it allows.",
    404: "Check base_url, to which /rerank is appended, and the model's name.",
    413: "Send fewer passages (max_passages).",
    422: "Check the model's name, and whether the endpoint takes the field top_n or top_k (limit_field).",
    429: "Wait, or ask the provider for a higher rate limit.",
}


class _Hit(BaseModel):
    """One passage in a response."""

    model_config = ConfigDict(hide_input_in_errors=True)

    index: int = Field(ge=0)
    score: float = Field(validation_alias=AliasChoices("relevance_score", "score"), allow_inf_nan=False)


class _Answer(BaseModel):
    """A response; some servers send the list alone."""

    model_config = ConfigDict(hide_input_in_errors=True)

    results: list[_Hit] = Field(validation_alias=AliasChoices("results", "data"))


@register("reranker", "api")
class APIReranker:
    """Reorders passages by a rerank endpoint: `POST {base_url}/rerank`.

    The request has `model`, `query`, `documents` and `top_n`; it reads `results` (or `data`, or a list alone)
    of `index` and `relevance_score` (or `score`). Scores outside 0 to 1 are read as logits. Passages
    that do not come back, and those beyond `max_passages`, follow in the order they had.

    The API key is sent only to this endpoint, and never appears in errors or logs.
    """

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: str | SecretStr | None = None,
        api_key_env: str | None = None,
        timeout: float = 10.0,
        max_passages: int = 100,
        limit_field: Literal["top_n", "top_k"] = "top_n",
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        """Configure the reranker; no request is sent yet.

        Args:
            base_url: URL before `/rerank`, such as `https://api.jina.ai/v1`.
            model: the model's name at the endpoint.
            api_key: sent as a bearer token; None for an endpoint without one.
            api_key_env: name of the environment variable that holds it, instead of `api_key`.
            timeout: seconds for a question, a second attempt included.
            max_passages: how many passages are sent, the best ones.
            limit_field: the endpoint's name for the number of passages to return; Voyage has `top_k`.
            client: the HTTP client to use, which the caller closes; by default one for each question.

        Raises:
            ConfigError: the address is invalid, the model is empty, a number is not above 0, the key is
                missing or malformed, or `api_key_env` is a key instead of a variable's name.
        """
        self._url = _endpoint(base_url)
        if not model:
            raise ConfigError("The reranker api has no model.", advice="Set model.")
        require_positive(of="the reranker api", timeout=timeout, max_passages=max_passages)
        self._model = model
        self._key = _key(api_key, api_key_env)
        self._timeout = timeout
        self._max_passages = max_passages
        self._limit_field = limit_field
        self._client = client

    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        """See `Reranker.rerank`.

        Raises:
            LLMError: the endpoint cannot be reached, refuses, is too slow, or answers with something else.
        """
        shown = items[: self._max_passages]
        if not shown or limit < 1:
            return []
        body: dict[str, object] = {
            "model": self._model,
            "query": query,
            "documents": [text_with_headings(item) for item in shown],
            self._limit_field: min(limit, len(shown)),
        }
        try:
            with anyio.fail_after(self._timeout):
                response = await self._post(body)
        except TimeoutError as error:
            raise LLMError(
                f"The rerank endpoint {self._url} did not answer within {self._timeout:g} s.",
                advice="Give it more time (timeout) or fewer passages (max_passages).",
            ) from error
        scores = self._scores(response, len(shown))
        open_scale = any(not 0 <= score <= 1 for score in scores.values())
        relevance = {place: logistic(score) if open_scale else score for place, score in scores.items()}
        return order_by_relevance(items, relevance, limit=limit, own=scores)

    async def _post(self, body: dict[str, object]) -> httpx2.Response:
        """Send a request, and retry once if the server is busy or unreachable."""
        import httpx2

        if self._client is not None:
            return await self._attempts(self._client, body)
        verify = await to_thread.run_sync(_certificates)
        async with httpx2.AsyncClient(timeout=None, verify=verify) as client:
            return await self._attempts(client, body)

    async def _attempts(self, client: httpx2.AsyncClient, body: dict[str, object]) -> httpx2.Response:
        import httpx2

        # A lone surrogate is not a character, and would fail the whole request.
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        deadline = time.monotonic() + self._timeout
        for attempt in (1, 2):
            pause = _PAUSE
            try:
                response = await client.post(
                    self._url, content=content, headers=headers, timeout=None, follow_redirects=False
                )
                if response.is_success:
                    return response
                failure = self._refusal(response)
                pause = _pause_of(response)
                again = response.status_code in _BUSY
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                failure = LLMError(
                    f"The rerank endpoint {self._url} cannot be reached: {self._safe(str(error))}",
                    advice="Check base_url and the network.",
                )
                again = isinstance(error, httpx2.TransportError)
            if attempt == 2 or not again or pause > deadline - time.monotonic():
                raise failure
            await anyio.sleep(pause)
        raise AssertionError  # the second attempt returns or raises

    def _refusal(self, response: httpx2.Response) -> LLMError:
        status = response.status_code
        said = self._safe(" ".join(response.text.split()))[:200]
        return LLMError(
            f"The rerank endpoint {self._url} answered {status} {response.reason_phrase}"
            + (f": {said}" if said else "."),
            advice=_ADVICE.get(status, "Try again later." if status >= 500 else "Check base_url."),
        )

    def _scores(self, response: httpx2.Response, count: int) -> dict[int, float]:
        try:
            payload = response.json()
            answer = _Answer.model_validate({"results": payload} if isinstance(payload, list) else payload)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self._unreadable(f"{where or 'the whole'}: {first['msg']}") from error
        except (ValueError, RecursionError) as error:
            raise self._unreadable("it is not valid JSON") from error
        scores: dict[int, float] = {}
        for hit in answer.results:
            if hit.index >= count:
                raise self._unreadable(f"it ranks passage {hit.index} of {count}")
            scores.setdefault(hit.index, hit.score)
        return scores

    def _unreadable(self, why: str) -> LLMError:
        return LLMError(
            f"The rerank endpoint {self._url} gave an answer that cannot be read: {why}.",
            advice="Check that base_url is that of a rerank API.",
        )

    def _safe(self, text: str) -> str:
        return redact(text, [self._key] if self._key is not None else [])


@cache
def _certificates() -> ssl.SSLContext:
    """Load the certificates once: that takes longer than a rerank."""
    import httpx2

    return httpx2.create_ssl_context()


def _endpoint(base_url: str) -> str:
    if not is_base_url(base_url):
        raise ConfigError(
            "base_url of the reranker api is not the address of an endpoint.",
            advice="Use http:// or https://, a host and a path, such as https://api.jina.ai/v1, and no key.",
        )
    address = base_url.rstrip("/")
    return address if address.endswith("/rerank") else f"{address}/rerank"


def _key(api_key: str | SecretStr | None, variable: str | None) -> SecretStr | None:
    if api_key is not None and variable is not None:
        raise ConfigError("The reranker api has api_key and api_key_env.", advice="Set one of them.")
    if variable is None:
        return None if api_key is None else check_key(api_key, source="api_key of the reranker api")
    check_variable(
        variable,
        setting="api_key_env of the reranker api",
        advice="Put the key into one and name it, such as JINA_API_KEY.",
    )
    key = find_key(variable, keyring=False)  # a keyring could block the caller
    if key is None:
        raise ConfigError(
            f"The environment variable {variable} is not set.", advice="Put the API key into it."
        )
    return key


def _pause_of(response: httpx2.Response) -> float:
    """Return the seconds of `Retry-After`: a number or a date (RFC 9110, section 10.2.3)."""
    wanted = response.headers.get("Retry-After", "").strip()
    if wanted.isascii() and wanted.isdigit():
        return float(wanted[:9])
    try:
        return max(0.0, parsedate_to_datetime(wanted).timestamp() - time.time())
    except (ValueError, OverflowError):
        return _PAUSE
