"""Settings of a remote embedding model: the user's options, then known facts of model and vendor."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict, overload
from urllib.parse import urlsplit

from loom_core.errors import ConfigError
from loom_core.keys import check_key, check_variable
from loom_core.net.url import is_base_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    import httpx2
    from pydantic import SecretStr

    from loom_core.embedding.interface import EmbeddingKind
    from loom_core.embedding.remote_models.vendors import EmbeddingVendor
    from loom_core.net.retry import RetryPolicy

__all__ = ["DEFAULT_CONCURRENCY", "KnownModel", "RemoteOptions", "RemoteSettings", "find_model"]

DEFAULT_CONCURRENCY = 4


class RemoteOptions(TypedDict, total=False):
    """Options of every remote embedder.

    Attributes:
        api_key: the key, if it does not come from the environment or the keyring.
        api_key_env: name of the environment variable that holds it.
        dimension: length of the vectors. It is requested from a model that supports shorter vectors; for any
            other it is only checked. By default that of the known model, else that of the first response.
        query_prefix: prefix of queries; by default that of the known model.
        passage_prefix: prefix of passages; by default that of the known model.
        max_tokens: maximum tokens of a text, by estimate; longer texts go in windows.
        max_texts: maximum texts of a request.
        max_request_tokens: maximum tokens of a request, by estimate.
        concurrency: concurrent requests of one call; 4 by default.
        timeout: seconds without data, after which a request has failed; by default 30, and 300 for Ollama,
            which is silent while it loads a model.
        retry: the retry policy; by default short for queries and longer for passages: a minute, or twice
            `timeout`.
        rest: seconds for which the circuit stays open if a server is unreachable; 15 by default.
        http_client: the HTTP client; the caller closes it.
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
    """Resolved settings; only the dimension of an unknown model may be missing.

    Attributes:
        vendor: the vendor.
        model: the model's name there.
        base_url: address of the API, without a trailing slash.
        known: known facts of the model.
        prefixes: prefixes of texts.
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
        """Resolve the user's options with the defaults of model and vendor.

        Args:
            vendor: the vendor, with its address and limits.
            model: the model's name there; empty for the vendor's usual one.
            base_url: address of the API; empty for the vendor's.
            options: see `RemoteOptions`.

        Raises:
            ConfigError: no model or no address is known, the address is invalid, a number is not above 0, the
                key is invalid, or given instead of the name of its variable.
        """
        model = model or vendor.model
        if not model:
            raise ConfigError(
                f"The embedding provider {vendor.name!r} has no model.",
                advice="Name one that the server has, such as bge-m3.",
            )
        known = find_model(model)
        key = options.get("api_key")
        query, passage = options.get("query_prefix"), options.get("passage_prefix")
        dimension = _require_positive("dimension", options.get("dimension"), vendor)
        return cls(
            vendor=vendor,
            model=model,
            base_url=_check_url(base_url or vendor.base_url, vendor),
            known=known,
            api_key=None if key is None else check_key(key, source="api_key"),
            api_key_env=_check_variable(options.get("api_key_env") or vendor.key_variable, vendor),
            dimension=dimension or known.dimension or None,
            prefixes={
                "query": known.query_prefix if query is None else query,
                "passage": known.passage_prefix if passage is None else passage,
            },
            max_tokens=_require_positive("max_tokens", options.get("max_tokens"), vendor) or known.max_tokens,
            max_texts=_require_positive("max_texts", options.get("max_texts"), vendor) or vendor.max_texts,
            max_request_tokens=_require_positive(
                "max_request_tokens", options.get("max_request_tokens"), vendor
            )
            or vendor.max_request_tokens,
            concurrency=_require_positive("concurrency", options.get("concurrency"), vendor)
            or DEFAULT_CONCURRENCY,
            timeout=_require_positive("timeout", options.get("timeout"), vendor) or vendor.timeout,
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
        """Non-default limits of requests: they change no vector, but may be needed for any response."""
        vendor = self.vendor
        asked: dict[str, tuple[int | float, int | float]] = {
            "max_texts": (self.max_texts, vendor.max_texts),
            "max_request_tokens": (self.max_request_tokens, vendor.max_request_tokens),
            "concurrency": (self.concurrency, DEFAULT_CONCURRENCY),
            "timeout": (self.timeout, vendor.timeout),
        }
        return {name: ours for name, (ours, usual) in asked.items() if ours != usual}


@overload
def _require_positive(name: str, number: int | None, vendor: EmbeddingVendor) -> int | None: ...
@overload
def _require_positive(name: str, number: float | None, vendor: EmbeddingVendor) -> float | None: ...
def _require_positive(name: str, number: float | None, vendor: EmbeddingVendor) -> float | None:
    if number is not None and not number > 0:
        raise ConfigError(
            f"{name} of the embedding provider {vendor.name!r} is {number}.",
            advice="Use a number above 0.",
        )
    return number


def _check_variable(name: str, vendor: EmbeddingVendor) -> str:
    if not name:
        return ""
    return check_variable(
        name,
        setting=f"api_key_env of the embedding provider {vendor.name!r}",
        advice=f"Put the key into one and name it, such as {vendor.key_variable or 'EMBEDDING_API_KEY'}.",
    )


def _check_url(base_url: str, vendor: EmbeddingVendor) -> str:
    if not is_base_url(base_url):
        said = "no address" if base_url else "missing"
        raise ConfigError(
            f"base_url of the embedding provider {vendor.name!r} is {said}.",
            advice="Use http:// or https://, host and path, such as http://localhost:8000/v1, and no key.",
        )
    return base_url.rstrip("/")


_ENGLISH = frozenset({"en"})
_CHINESE = frozenset({"zh"})
_SEARCH = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model, or a family of models.

    Attributes:
        pattern: glob pattern of their names: `*bge-m3*`; case-insensitive.
        dimension: length of a vector; 0 if unknown.
        shortens: whether it supports shorter vectors by the field `dimensions`.
        max_tokens: maximum tokens of a text.
        query_prefix: required prefix of queries.
        passage_prefix: required prefix of passages.
        languages: see `EmbeddingProvider.languages`.
        cross_lingual: see `EmbeddingProvider.cross_lingual`.
    """

    pattern: str
    dimension: int = 0
    shortens: bool = False
    max_tokens: int = 8192
    query_prefix: str = ""
    passage_prefix: str = ""
    languages: frozenset[str] | None = None
    cross_lingual: bool = True


def _e5(pattern: str, dimension: int, languages: frozenset[str] | None = None) -> KnownModel:
    """Return a model of the E5 family (arXiv:2402.05672, arXiv:2212.03533)."""
    return KnownModel(
        pattern=pattern,
        dimension=dimension,
        max_tokens=512,
        query_prefix="query: ",
        passage_prefix="passage: ",
        languages=languages,
        cross_lingual=languages is None,
    )


def _bge(pattern: str, dimension: int, languages: frozenset[str], query_prefix: str = _SEARCH) -> KnownModel:
    """Return a monolingual model with an instruction before queries, as BGE 1.5 (arXiv:2309.07597)."""
    return KnownModel(
        pattern=pattern,
        dimension=dimension,
        max_tokens=512,
        query_prefix=query_prefix,
        languages=languages,
        cross_lingual=False,
    )


def _qwen3(size: str, dimension: int) -> KnownModel:
    """Return a model of the Qwen3-Embedding family (arXiv:2506.05176)."""
    return KnownModel(
        pattern=f"*qwen3-embedding{size}*",
        dimension=dimension,
        shortens=True,
        max_tokens=32_768,
        query_prefix=_INSTRUCT,
    )


_BGE_ZH = "为这个句子生成表示以用于检索相关文章："

_MODELS = (
    # Vendors' own, by their documentation.
    KnownModel(pattern="text-embedding-3-small", dimension=1536, shortens=True, max_tokens=8191),
    KnownModel(pattern="text-embedding-3-large", dimension=3072, shortens=True, max_tokens=8191),
    KnownModel(pattern="text-embedding-ada-002", dimension=1536, max_tokens=8191),
    KnownModel(pattern="text-embedding-v[34]", dimension=1024, shortens=True),
    KnownModel(pattern="text-embedding-v[12]", dimension=1536, max_tokens=2048),
    KnownModel(pattern="embedding-3", dimension=2048, shortens=True, max_tokens=3072),
    KnownModel(pattern="embedding-2", dimension=1024, max_tokens=512),
    KnownModel(
        pattern="doubao-embedding-large-text-250515",
        dimension=2048,
        max_tokens=4096,
        query_prefix=_INSTRUCT,
        languages=_CHINESE | _ENGLISH,
    ),
    KnownModel(pattern="gemini-embedding-001", dimension=3072, shortens=True, max_tokens=2048),
    KnownModel(
        pattern="gemini-embedding-2*",
        dimension=3072,
        shortens=True,
        query_prefix="task: search result | query: ",
        passage_prefix="title: none | text: ",
    ),
    # Open weights, by their model cards; servers put owners before the names, and sizes behind them.
    KnownModel(
        pattern="*multilingual-e5-large-instruct*", dimension=1024, max_tokens=512, query_prefix=_INSTRUCT
    ),
    _e5("*multilingual-e5-large*", 1024),
    _e5("*multilingual-e5-base*", 768),
    _e5("*multilingual-e5-small*", 384),
    _e5("*e5-large-v2*", 1024, _ENGLISH),
    _e5("*e5-base-v2*", 768, _ENGLISH),
    _e5("*e5-small-v2*", 384, _ENGLISH),
    KnownModel(pattern="*bge-m3*", dimension=1024),
    _bge("*bge-large-zh-v1.5*", 1024, _CHINESE, _BGE_ZH),
    _bge("*bge-base-zh-v1.5*", 768, _CHINESE, _BGE_ZH),
    _bge("*bge-small-zh-v1.5*", 512, _CHINESE, _BGE_ZH),
    _bge("*bge-large-en-v1.5*", 1024, _ENGLISH),
    _bge("*bge-base-en-v1.5*", 768, _ENGLISH),
    _bge("*bge-small-en-v1.5*", 384, _ENGLISH),
    _bge("*mxbai-embed-large*", 1024, _ENGLISH),
    _qwen3("?0.6b", 1024),
    _qwen3("?4b", 2560),
    _qwen3("?8b", 4096),
    _qwen3("", 0),
    KnownModel(
        pattern="*embeddinggemma*",
        dimension=768,
        shortens=True,
        max_tokens=2048,
        query_prefix="task: search result | query: ",
        passage_prefix="title: none | text: ",
    ),
    KnownModel(
        pattern="*nomic-embed-text-v2*",
        dimension=768,
        max_tokens=512,
        query_prefix="search_query: ",
        passage_prefix="search_document: ",
    ),
    KnownModel(
        pattern="*nomic-embed-text*",
        dimension=768,
        max_tokens=2048,
        query_prefix="search_query: ",
        passage_prefix="search_document: ",
        languages=_ENGLISH,
        cross_lingual=False,
    ),
    KnownModel(pattern="*arctic-embed-l-v2*", dimension=1024, query_prefix="query: "),
    KnownModel(pattern="*arctic-embed2*", dimension=1024, query_prefix="query: "),
    KnownModel(
        pattern="*all-minilm*", dimension=384, max_tokens=256, languages=_ENGLISH, cross_lingual=False
    ),
)


def find_model(name: str) -> KnownModel:
    """Return the facts of a model; an unknown one takes 8192 tokens and about every language."""
    folded = name.casefold()
    return next((model for model in _MODELS if fnmatchcase(folded, model.pattern)), KnownModel(pattern=name))
