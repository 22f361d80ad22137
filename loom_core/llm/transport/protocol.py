"""Protocol of wire clients, and the connection settings that they use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from loom_core.errors import ConfigError, LLMError, capitalise

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
    """Connection settings of a model. Its `repr` shows no secret.

    Attributes:
        spec: the vendor, as it is for this model (`ProviderSpec.for_model`).
        model: the model.
        base_url: address of the API.
        api_key: the key, or None if none is needed.
        headers: headers of every request, added to those of the spec.
        timeout: seconds without data from the vendor, after which a request has failed; connecting may take
            10 seconds at most.
        http_client: the HTTP client; by default one is created at the first request. The wire client does not
            close a given one.
    """

    spec: ProviderSpec
    model: str
    base_url: str
    api_key: SecretStr | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout: float = 120.0
    http_client: httpx2.AsyncClient | None = None

    def __post_init__(self) -> None:
        """Validate address and headers before the first request.

        Raises:
            ConfigError: the address or a header is invalid. The message does not repeat possible secrets.
        """
        if wrong := _wrong_address(self.base_url):
            who = capitalise(self.spec.title)
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
        """Whether there is a key, possibly in a custom header."""
        return self.api_key is not None or not _KEY_HEADERS.isdisjoint(map(str.casefold, self.headers))


class WireClient(Protocol):
    """Sends single requests in one wire format. It does not retry: its caller does."""

    async def complete(self, request: ChatRequest) -> LLMResponse:
        """Return the complete response to a request.

        `LLMResponse.usage` is as the vendor reports it, or `Usage(estimated=True)` if it does not.

        Raises:
            LLMError: there is no readable response. No message has a key in it.
        """
        ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk]:
        """Stream the response to a request; closing the iterator closes the connection.

        Raises:
            LLMError: as for `complete`. `failure` says what happened, whether or not a chunk came before: the
                caller changes it to `interrupted`.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; the next request opens new ones."""
        ...


def interrupted_error(spec: ProviderSpec, model: str) -> LLMError:
    """Return the error of a request whose provider was closed in the meantime."""
    return LLMError(
        f"The connection to {spec.title} was closed during a request to {model}.",
        advice="Send the request again if its answer is still needed.",
        failure="interrupted",
        provider=spec.name,
    )


def _wrong_address(url: str) -> str:
    """Return why an address is invalid, or an empty text."""
    if not url:
        return "there is no address"
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            # Logs and messages show addresses.
            return "the address must not contain a password" if "@" in parts.netloc else ""
    except ValueError:  # invalid brackets or port
        pass
    return "it is not an http(s) address"
