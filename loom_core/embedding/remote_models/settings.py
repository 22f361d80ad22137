"""What a remote embedding model is asked with: what the user says, then what is known of model and vendor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict, overload
from urllib.parse import urlsplit

from loom_core.embedding.remote_models.known_models import known_model
from loom_core.errors import ConfigError
from loom_core.keys import checked_key, checked_variable
from loom_core.net.url import is_base_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    import httpx2
    from pydantic import SecretStr

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.remote_models.known_models import KnownModel
    from loom_core.embedding.remote_models.vendors import EmbeddingVendor
    from loom_core.retry import RetryPolicy

__all__ = ["USUAL_CONCURRENCY", "RemoteOptions", "RemoteSettings"]

USUAL_CONCURRENCY = 4


class RemoteOptions(TypedDict, total=False):
    """What every remote embedder may be told.

    Attributes:
        api_key: the key, where it does not come from the environment or the keyring.
        api_key_env: name of the environment variable that holds it.
        dimension: length of the vectors. A model that can make shorter ones is asked for them; any other
            is held to it. By default what is known of the model, or else what its first answer has.
        query_prefix: what is put before a question; by default what is known of the model.
        passage_prefix: the same for a passage.
        max_tokens: how long a text may be, by estimate; what is longer goes in windows.
        max_texts: how many texts a request may hold.
        max_request_tokens: how many tokens they may have together, by estimate.
        concurrency: how many requests of one call are under way at once; 4 by default.
        timeout: seconds without a sign of life, after which a request has failed; by default 30, and 300 for
            Ollama, which is silent while it loads a model.
        retry: how often and for how long requests are tried; by default briefly for questions and longer for
            passages: a minute, or twice `timeout`.
        rest: seconds for which a server is left alone that cannot be reached; 15 by default.
        http_client: makes the requests, and stays the caller's to close.
    """

    api_key: str | SecretStr | None
    api_key_env: str
    dimension: int | None
    query_prefix: str | None
    passage_prefix: str | None
    max_tokens: int | None
    max_texts: int | None
    max_request_tokens: int | None
    concurrency: int
    timeout: float | None
    retry: RetryPolicy | None
    rest: float
    http_client: httpx2.AsyncClient | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """The same, with nothing left open but the dimension of a model nobody knows.

    Attributes:
        vendor: where the model is.
        model: its name there.
        base_url: where the interface is, without a slash at the end.
        known: what is known of the model.
        prefixes: what is put before texts.
    """

    vendor: EmbeddingVendor
    model: str
    base_url: str
    known: KnownModel
    api_key: SecretStr | None
    api_key_env: str
    dimension: int | None
    prefixes: Mapping[EmbeddingKind, str]
    max_tokens: int
    max_texts: int
    max_request_tokens: int
    concurrency: int
    timeout: float
    retry: RetryPolicy | None
    rest: float
    http_client: httpx2.AsyncClient | None = field(repr=False)

    @classmethod
    def of(
        cls, vendor: EmbeddingVendor, *, model: str, base_url: str, **options: Unpack[RemoteOptions]
    ) -> RemoteSettings:
        """Settings from what the user says.

        Args:
            vendor: where, unless it is said here, and within which limits.
            model: the model's name there; empty for the vendor's usual one.
            base_url: where the interface is; empty for the vendor's.
            options: see `RemoteOptions`.

        Raises:
            ConfigError: no model or no address is known, the address is none, a number is not above 0, the
                key cannot be one, or stands where the name of its variable should.
        """
        model = model or vendor.model
        if not model:
            raise ConfigError(
                f"The embedding provider {vendor.name!r} has no model.",
                advice="Name one that the server has, such as bge-m3.",
            )
        known = known_model(model)
        key = options.get("api_key")
        query, passage = options.get("query_prefix"), options.get("passage_prefix")
        dimension = _above_zero("dimension", options.get("dimension"), vendor)
        return cls(
            vendor=vendor,
            model=model,
            base_url=_checked_url(base_url or vendor.base_url, vendor),
            known=known,
            api_key=None if key is None else checked_key(key, source="api_key"),
            api_key_env=_checked_variable(options.get("api_key_env") or vendor.key_variable, vendor),
            dimension=dimension or known.dimension or None,
            prefixes={
                "query": known.query_prefix if query is None else query,
                "passage": known.passage_prefix if passage is None else passage,
            },
            max_tokens=_above_zero("max_tokens", options.get("max_tokens"), vendor) or known.max_tokens,
            max_texts=_above_zero("max_texts", options.get("max_texts"), vendor) or vendor.max_texts,
            max_request_tokens=_above_zero("max_request_tokens", options.get("max_request_tokens"), vendor)
            or vendor.max_request_tokens,
            concurrency=_above_zero("concurrency", options.get("concurrency"), vendor) or USUAL_CONCURRENCY,
            timeout=_above_zero("timeout", options.get("timeout"), vendor) or vendor.timeout,
            retry=options.get("retry"),
            rest=options.get("rest", 15.0),
            http_client=options.get("http_client"),
        )

    @property
    def host(self) -> str:
        """Host and port of the address."""
        return urlsplit(self.base_url).netloc

    @property
    def limits(self) -> dict[str, int | float]:
        """How the server is asked otherwise than usual: no vector depends on it, but perhaps every answer."""
        vendor = self.vendor
        asked: dict[str, tuple[int | float, int | float]] = {
            "max_texts": (self.max_texts, vendor.max_texts),
            "max_request_tokens": (self.max_request_tokens, vendor.max_request_tokens),
            "concurrency": (self.concurrency, USUAL_CONCURRENCY),
            "timeout": (self.timeout, vendor.timeout),
        }
        return {name: ours for name, (ours, usual) in asked.items() if ours != usual}


@overload
def _above_zero(name: str, number: int | None, vendor: EmbeddingVendor) -> int | None: ...
@overload
def _above_zero(name: str, number: float | None, vendor: EmbeddingVendor) -> float | None: ...
def _above_zero(name: str, number: float | None, vendor: EmbeddingVendor) -> float | None:
    if number is not None and not number > 0:
        raise ConfigError(
            f"{name} of the embedding provider {vendor.name!r} is {number}.",
            advice="Use a number above 0.",
        )
    return number


def _checked_variable(name: str, vendor: EmbeddingVendor) -> str:
    if not name:
        return ""
    return checked_variable(
        name,
        setting=f"api_key_env of the embedding provider {vendor.name!r}",
        advice=f"Put the key into one and name it, such as {vendor.key_variable or 'EMBEDDING_API_KEY'}.",
    )


def _checked_url(base_url: str, vendor: EmbeddingVendor) -> str:
    if not is_base_url(base_url):
        said = "no address" if base_url else "missing"
        raise ConfigError(
            f"base_url of the embedding provider {vendor.name!r} is {said}.",
            advice="Use http:// or https://, host and path, such as http://localhost:8000/v1, and no key.",
        )
    return base_url.rstrip("/")
