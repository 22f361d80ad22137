"""Embedding models with OpenAI's API (`POST /embeddings`): OpenAI's own, and those of most vendors."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from loom_core.embedding.remote_models.base import RemoteEmbedder
from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS
from loom_core.errors import ConfigError, EmbeddingError
from loom_core.installation import how_to_install
from loom_core.sdk_environment import custom_headers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    import numpy as np
    from numpy.typing import NDArray
    from openai import AsyncOpenAI

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.remote_models.settings import RemoteOptions
    from loom_core.embedding.remote_models.vendors import Encoding

__all__ = ["OpenAICompatibleEmbedder", "OpenAIEmbeddingProvider"]

_NO_KEY = "none"
"""Placeholder for the key that the SDK requires; it is never sent."""


class _Row(BaseModel):
    """One vector of a response."""

    model_config = ConfigDict(hide_input_in_errors=True)

    index: int | None = None
    embedding: str | list[float]


class _Answer(BaseModel):
    """The parsed part of a response."""

    model_config = ConfigDict(hide_input_in_errors=True)

    data: list[_Row]


class OpenAICompatibleEmbedder(RemoteEmbedder["AsyncOpenAI"]):
    """Embedding model with OpenAI's API, by OpenAI's SDK.

    Vectors come as base64 or as numbers, as the server supports it. For a server that distinguishes queries
    and passages by the field `input_type`, set `query_input_type` and `passage_input_type`.
    """

    def __init__(
        self,
        *,
        provider: str = "openai_compatible",
        model: str = "",
        base_url: str = "",
        query_input_type: str = "",
        passage_input_type: str = "",
        **options: Unpack[RemoteOptions],
    ) -> None:
        """Store the settings; nothing is sent yet.

        Args:
            provider: name of a row of `EMBEDDING_VENDORS`; it says where, and within which limits.
            model: the model's name there; by default the vendor's usual one.
            base_url: address of the API, including `/v1`.
            query_input_type: value of `input_type` for a query; empty to leave the field out.
            passage_input_type: the same for a passage.
            options: see `RemoteOptions`.

        Raises:
            ConfigError: there is no such provider, or see `RemoteSettings.of`.
        """
        if provider == "ollama":
            raise ConfigError("Ollama has its own API.", advice="Use OllamaEmbedder.")
        vendor = EMBEDDING_VENDORS.get(provider)
        if vendor is None:
            raise ConfigError(
                f"There is no embedding provider {provider!r}.",
                advice=f"Use one of: local, {', '.join(EMBEDDING_VENDORS)}.",
            )
        super().__init__(vendor, model=model, base_url=base_url, **options)
        self._input_types: Mapping[EmbeddingKind, str] = {
            "query": query_input_type,
            "passage": passage_input_type,
        }
        self._encoding: Encoding = vendor.encoding

    def _request_config(self) -> dict[str, str]:
        return {f"{kind}_input_type": type_ for kind, type_ in self._input_types.items() if type_}

    def _make_client(self) -> AsyncOpenAI:
        try:
            from openai import AsyncOpenAI
        except ImportError as error:
            raise EmbeddingError(
                f"Embedding with {self._vendor.title} needs the package openai, which is not installed.",
                advice=how_to_install("loom-mcp-core[openai]"),
            ) from error
        import httpx2

        key = self._key()
        client = AsyncOpenAI(
            # Without a key, the SDK would take OpenAI's from the environment, whatever the server.
            api_key=key.get_secret_value() if key is not None else _NO_KEY,
            base_url=self._settings.base_url,
            timeout=httpx2.Timeout(self._settings.timeout, connect=min(5.0, self._settings.timeout)),
            max_retries=0,
            # Set here, too, as the environment may have another one for OpenAI.
            default_headers=None if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"},
            http_client=self._settings.http_client,
        )
        if self._vendor.name != "openai":
            client.organization = client.project = None
        return client

    async def _close_client(self, client: AsyncOpenAI) -> None:
        await client.close()

    async def _request(
        self, client: AsyncOpenAI, texts: list[str], kind: EmbeddingKind
    ) -> Sequence[Sequence[float] | NDArray[np.float32]]:
        asked = self._encoding
        try:
            content = await self._post(client, texts, kind)
        except EmbeddingError as error:
            refused = error.failure == "invalid_request" and "encoding" in error.message
            if asked == "float" or not refused:
                raise
            self._encoding = "float"  # permanently: this server supports nothing else
            content = await self._post(client, texts, kind)
        try:
            rows = _Answer.model_validate_json(content).data
        except ValidationError as error:
            raise self._invalid(error) from None
        try:
            return [_numbers(row.embedding) for row in self._in_order(rows)]
        except ValueError:  # of which binascii.Error is one
            raise self._unreadable("a vector is neither numbers nor base64 of numbers") from None

    async def _post(self, client: AsyncOpenAI, texts: list[str], kind: EmbeddingKind) -> bytes:
        """Return the unparsed body of a response: the SDK validates nothing, and trusts the order."""
        import httpx2
        from openai import OpenAIError, omit

        input_type = self._input_types[kind]
        wanted = self._dimension_to_request()
        try:
            answer = await client.embeddings.with_raw_response.create(
                model=self._model,
                input=texts,
                encoding_format=self._encoding,
                dimensions=omit if wanted is None else wanted,
                extra_headers=dict.fromkeys(self._headers_to_drop(client), omit),
                extra_body={"input_type": input_type} if input_type else None,
            )
        except (OpenAIError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._convert_error(error) from None
        return answer.content

    def _headers_to_drop(self, client: AsyncOpenAI) -> list[str]:
        """Return headers that the SDK would add, and that this server must not get."""
        foreign = custom_headers("openai") if self._vendor.name != "openai" else []
        if client.api_key == _NO_KEY:
            return ["Authorization", *foreign]
        return [name for name in foreign if name.casefold() != "authorization"]

    def _in_order(self, rows: list[_Row]) -> list[_Row]:
        """Sort vectors in the order of the texts: by `index`, or as received if none has one."""
        indexes = [row.index for row in rows if row.index is not None]
        if not indexes:
            return rows
        if sorted(indexes) != list(range(len(rows))):
            raise self._unreadable("the indexes of its vectors are not those of the texts")
        return sorted(rows, key=lambda row: row.index or 0)


class OpenAIEmbeddingProvider(OpenAICompatibleEmbedder):
    """A model of OpenAI, such as `text-embedding-3-small` and `text-embedding-3-large`."""

    def __init__(self, *, model: str = "", base_url: str = "", **options: Unpack[RemoteOptions]) -> None:
        """See `OpenAICompatibleEmbedder`."""
        super().__init__(provider="openai", model=model, base_url=base_url, **options)


def _numbers(embedding: str | list[float]) -> list[float] | NDArray[np.float32]:
    """Decode a vector: numbers, or base64 of little-endian 32-bit floats."""
    if not isinstance(embedding, str):
        return embedding
    import numpy as np

    try:
        data = base64.b64decode(embedding, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    return np.frombuffer(data, dtype="<f4").astype(np.float32)
