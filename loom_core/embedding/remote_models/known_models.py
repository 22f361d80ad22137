"""What is known of embedding models that servers run, by their names."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["KnownModel", "known_model"]

_ENGLISH = frozenset({"en"})
_CHINESE = frozenset({"zh"})
_SEARCH = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model, or a family of models.

    Attributes:
        pattern: their names, as in file names: `*bge-m3*`. Letter case does not count.
        dimension: length of a vector; 0 where that is not known.
        shortens: whether it makes shorter vectors when asked by the field `dimensions`.
        max_tokens: how long a text may be.
        query_prefix: what it wants to see before a question.
        passage_prefix: what it wants to see before a passage.
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
    """A model of the E5 family (arXiv:2402.05672, arXiv:2212.03533)."""
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
    """A model of one language that wants an instruction before questions, as BGE 1.5 (arXiv:2309.07597)."""
    return KnownModel(
        pattern=pattern,
        dimension=dimension,
        max_tokens=512,
        query_prefix=query_prefix,
        languages=languages,
        cross_lingual=False,
    )


def _qwen3(size: str, dimension: int) -> KnownModel:
    """A model of the Qwen3-Embedding family (arXiv:2506.05176)."""
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


def known_model(name: str) -> KnownModel:
    """What is known of a model; of one nobody knows, that it takes 8192 tokens and about every language."""
    folded = name.casefold()
    return next((model for model in _MODELS if fnmatchcase(folded, model.pattern)), KnownModel(pattern=name))
