"""Embedding models of Ollama (`POST /api/embed`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from loom_core.embedding.remote_models.base import RemoteEmbedder
from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    import httpx2
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.remote_models.settings import RemoteOptions

__all__ = ["OllamaEmbedder"]

_OLLAMA = EMBEDDING_VENDORS["ollama"]


class _Answer(BaseModel):
    """The parsed part of a response."""

    model_config = ConfigDict(hide_input_in_errors=True)

    embeddings: list[list[float]]


class _RefusedError(Exception):
    """An error response, in the form for `model_error`."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(response.reason_phrase)
        self.status_code = response.status_code
        self.body = response.text
        self.response = response
        self.request = response.request


@dataclass(frozen=True, slots=True)
class _Server:
    """HTTP client and headers for Ollama; the headers may have a key."""

    http: httpx2.AsyncClient
    headers: dict[str, str] = field(repr=False)


class OllamaEmbedder(RemoteEmbedder["_Server"]):
    """Embedding model of Ollama, by its native API: the OpenAI-compatible one silently truncates long texts.

    Source: https://docs.ollama.com/api/embed
    """

    def __init__(self, *, model: str, base_url: str = "", **options: Unpack[RemoteOptions]) -> None:
        """Store the settings; nothing is sent yet.

        Args:
            model: a model that has been pulled, such as `bge-m3`.
            base_url: where Ollama is; a `/v1` at the end is left out.
            options: see `RemoteOptions`.

        Raises:
            ConfigError: see `RemoteSettings.of`.
        """
        super().__init__(_OLLAMA, model=model, base_url=base_url.rstrip("/").removesuffix("/v1"), **options)

    def _make_client(self) -> _Server:
        import httpx2

        key = self._key()
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key.get_secret_value()}"
        timeout = httpx2.Timeout(self._settings.timeout, connect=min(5.0, self._settings.timeout))
        return _Server(self._settings.http_client or httpx2.AsyncClient(timeout=timeout), headers)

    async def _close_client(self, client: _Server) -> None:
        await client.http.aclose()

    async def _request(
        self, client: _Server, texts: list[str], kind: EmbeddingKind
    ) -> Sequence[Sequence[float] | NDArray[np.float32]]:
        # Refuse instead of truncating: texts that are too long go in windows.
        body: dict[str, object] = {"model": self._model, "input": texts, "truncate": False}
        if (wanted := self._dimension_to_request()) is not None:
            body["dimensions"] = wanted
        content = await self._post(client, json.dumps(body).encode())
        try:
            return _Answer.model_validate_json(content).embeddings
        except ValidationError as error:
            raise self._invalid(error) from None

    async def _post(self, client: _Server, content: bytes) -> bytes:
        import httpx2

        try:
            response = await client.http.post(
                f"{self._settings.base_url}/api/embed",
                content=content,
                headers=client.headers,
                follow_redirects=True,  # as the SDKs do: proxies send from http to https
            )
            if not response.is_success:
                raise _RefusedError(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, _RefusedError) as error:
            failure = self._convert_error(error)
            if failure.failure == "not_found":
                advice = f"Run: ollama pull {self._model}; or check the model's name and base_url."
                failure = failure.reword(failure.message, advice=advice)
            raise failure from None
        return response.content
