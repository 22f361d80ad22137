"""One way of speaking with a vendor, as providers use it: a request goes out, an answer comes back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from loom_core.errors import ConfigError, LLMError, capitalised

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    import httpx2
    from pydantic import SecretStr

    from loom_core.llm.interface import ChatRequest, LLMResponse, StreamChunk
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["Connection", "WireClient", "interrupted_error"]

_KEY_HEADERS = frozenset({"api-key", "authorization", "x-api-key"})
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a model is asked, and how. What is shown of it holds no secret.

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
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout: float = 120.0
    http_client: httpx2.AsyncClient | None = None

    def __post_init__(self) -> None:
        """Find what can never work before it is sent.

        Raises:
            ConfigError: the address or a header cannot be one. The message does not repeat what may be a
                secret.
        """
        if wrong := _wrong_address(self.base_url):
            who = capitalised(self.spec.title)
            raise ConfigError(f"{who} cannot be asked: {wrong}.", advice="Set `base_url`.")
        for name, value in {**self.spec.headers, **self.headers}.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ConfigError(f"No header can be called {name!r}.", advice="Write it like X-Title.")
            if not value.isascii() or not value.isprintable():
                raise ConfigError(
                    f"The header {name} holds characters that cannot be sent.",
                    advice="Use printable ASCII characters only.",
                )

    @property
    def has_key(self) -> bool:
        """Whether there is a key, be it in a header of one's own."""
        return self.api_key is not None or not _KEY_HEADERS.isdisjoint(map(str.casefold, self.headers))


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


def interrupted_error(spec: ProviderSpec, model: str) -> LLMError:
    """The error of a request that was under way when its provider was closed."""
    return LLMError(
        f"The connection to {spec.title} was closed while {model} was asked.",
        advice="Ask again, if the answer is still wanted.",
        failure="interrupted",
        provider=spec.name,
    )


def _wrong_address(url: str) -> str:
    """Why an address can be none, or empty."""
    if not url:
        return "there is no address"
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            # It would be shown wherever the address is.
            return "a password may not stand in the address" if "@" in parts.netloc else ""
    except ValueError:  # of brackets, and of ports
        pass
    return "the address is no http(s) address"
