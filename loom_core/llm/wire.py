"""One way of speaking with a vendor, as providers use it: a request goes out, an answer comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    import httpx2
    from pydantic import SecretStr

    from loom_core.llm.interface import ChatRequest, LLMResponse, StreamChunk
    from loom_core.llm.spec import ProviderSpec

__all__ = ["Connection", "WireClient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a model is asked, and how.

    Attributes:
        spec: the vendor, as it is for this model (`ProviderSpec.for_model`).
        model: the model.
        base_url: where its interface is.
        api_key: the key, or None where none is needed.
        headers: headers for every request besides those of the spec.
        timeout: seconds without a sign of life from the vendor, after which a request has failed; connecting
            may take 10 of them at most.
        http_client: what requests are made with; by default one is made at the first request. It is not
            closed by who uses it.
    """

    spec: ProviderSpec
    model: str
    base_url: str
    api_key: SecretStr | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 120.0
    http_client: httpx2.AsyncClient | None = None


class WireClient(Protocol):
    """Sends single requests, in one of the two formats. It tries once: who uses it tries again."""

    async def complete(self, request: ChatRequest) -> LLMResponse:
        """The whole answer to a request.

        `LLMResponse.usage` is what the vendor says, or `Usage(estimated=True)` where it says nothing.

        Raises:
            LLMError: there is no answer that can be read. No message holds a key.
        """
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk]:
        """The answer to a request, piece by piece; closing the iterator closes the connection.

        Raises:
            LLMError: as for `complete`. `failure` says what happened, whether or not a piece came before: who
                hands pieces on makes it `interrupted`.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; the next request opens new ones."""
        ...
