"""What each vendor of chat-completions takes and how it answers, by its own documentation: rows of data.

Written apart from `loom_core.llm.vendors`, so that a mistake there is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal

__all__ = ["CHAT_VENDORS", "ChatVendor", "fits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatVendor:
    """One vendor.

    Attributes:
        name: the first part of the path that its server is at.
        path: the rest of its base URL.
        hosts: under which names it is really found; requests to them come here, too.
        models: patterns of the models it has.
        needs_key: whether it refuses requests without its key.
        body_fields: of a request; None where it ignores what it does not know.
        message_fields: of a message, beyond role, content, name, tool_calls and tool_call_id; None where it
            ignores what it does not know.
        token_fields: how the limit of an answer may be called.
        tool_choices: which it takes: of `auto`, `none`, `required`, `named`.
        tool_choices_thinking: the same while the model thinks; None for no difference.
        formats: which types of `response_format` it takes.
        formats_thinking: the same while the model thinks; None for no difference.
        json_word: whether the word has to stand in the conversation for `json_object`.
        schema: what it takes of JSON Schema.
        images: which models take images, as patterns.
        image_urls: whether images may be given by address.
        first_system: whether a system message may stand in front only, and alone.
        user_needed: whether there has to be a message of the user.
        empty_content: whether a message may have an empty text.
        tool_parser: patterns of models that were started with one, where servers do not do so by themselves.
        reasoning_field: of its answers; empty for none, `think` for tags in the text.
        usage_in: where a stream says what it took: in a chunk of its own if asked for it, in the last chunk,
            or in every chunk.
        whole_calls: whether a stream has each tool call in one piece.
        stream_finish: why a stream with tool calls ends, in its word.
        keep_alive: what it sends while nothing else is there.
        embeddings: its embedding models, and how many numbers a vector has.
        embedding_batch: how many texts it takes at once.
    """

    name: str
    path: str = "/v1"
    hosts: tuple[str, ...] = ()
    models: tuple[str, ...]
    needs_key: bool = True
    body_fields: frozenset[str] | None = None
    message_fields: frozenset[str] | None = None
    token_fields: frozenset[str] = frozenset({"max_tokens"})
    tool_choices: frozenset[str] = frozenset({"auto", "none", "required", "named"})
    tool_choices_thinking: frozenset[str] | None = None
    formats: frozenset[str] = frozenset({"text", "json_object"})
    formats_thinking: frozenset[str] | None = None
    json_word: bool = False
    schema: Literal["full", "inline", "gemini"] = "full"
    images: tuple[str, ...] = ()
    image_urls: bool = True
    first_system: bool = False
    user_needed: bool = False
    empty_content: bool = True
    tool_parser: tuple[str, ...] = ("*",)
    reasoning_field: Literal["", "reasoning_content", "reasoning", "think"] = "reasoning_content"
    usage_in: Literal["own", "last", "every"] = "own"
    whole_calls: bool = False
    stream_finish: str = "tool_calls"
    keep_alive: bytes = b""
    embeddings: Mapping[str, int] = field(default_factory=dict[str, int])
    embedding_batch: int = 2048


_BOTH = frozenset({"max_tokens", "max_completion_tokens"})
_UNFORCED = frozenset({"auto", "none"})
_ALL_FORMATS = frozenset({"text", "json_object", "json_schema"})
_STANDARD_BODY = frozenset(
    """
    messages model frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata modalities
    n parallel_tool_calls presence_penalty prompt_cache_key reasoning_effort response_format safety_identifier
    seed service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user
    verbosity
    """.split()
)

_ROWS = (
    ChatVendor(
        name="openai",
        hosts=("api.openai.com",),
        models=("gpt-4.1*", "gpt-4o*", "gpt-5*", "o3*", "o4*"),
        body_fields=_STANDARD_BODY,
        message_fields=frozenset({"refusal", "audio"}),
        token_fields=_BOTH,
        formats=_ALL_FORMATS,
        json_word=True,
        images=("*",),
        reasoning_field="",  # it keeps its reasoning to itself
        embeddings={"text-embedding-3-small": 1536, "text-embedding-3-large": 3072},
    ),
    ChatVendor(
        name="deepseek",
        path="",
        hosts=("api.deepseek.com",),
        models=("deepseek-flash", "deepseek-v4-*", "deepseek-chat", "deepseek-reasoner"),
        tool_choices_thinking=_UNFORCED,
        json_word=True,
        usage_in="last",
        keep_alive=b": keep-alive\n\n",
    ),
    ChatVendor(
        name="qwen",
        path="/compatible-mode/v1",
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
        models=("qwen*", "qwq*"),
        token_fields=_BOTH,
        tool_choices=frozenset({"auto", "none", "named"}),
        tool_choices_thinking=_UNFORCED,
        formats=_ALL_FORMATS,
        formats_thinking=frozenset({"text"}),
        json_word=True,
        schema="inline",
        images=("qwen3.[5678]*", "*-vl*"),
        embeddings={"text-embedding-v4": 1024},
        embedding_batch=10,
    ),
    ChatVendor(
        name="gemini",
        path="/v1beta/openai",
        hosts=("generativelanguage.googleapis.com",),
        models=("gemini-*", "models/gemini-*"),
        body_fields=_STANDARD_BODY | {"extra_body"},
        message_fields=frozenset({"refusal"}),
        token_fields=_BOTH,
        formats=_ALL_FORMATS,
        schema="gemini",
        images=("*",),
        image_urls=False,
        user_needed=True,
        empty_content=False,
        reasoning_field="",  # it keeps its reasoning to itself, unless `include_thoughts` asks for a summary
        usage_in="every",
        whole_calls=True,
        stream_finish="stop",
        embeddings={"gemini-embedding-001": 3072},
        embedding_batch=100,
    ),
    ChatVendor(
        name="kimi",
        hosts=("api.moonshot.ai", "api.moonshot.cn"),
        models=("kimi-k*", "moonshot-v1-*"),
        token_fields=_BOTH,
        tool_choices=frozenset({"auto", "none", "named"}),
        tool_choices_thinking=_UNFORCED,
        formats=_ALL_FORMATS,
        images=("kimi-k[3-9]*", "kimi-k2.[5-9]*"),
        image_urls=False,
        empty_content=False,
        usage_in="last",
    ),
    ChatVendor(
        name="doubao",
        path="/api/v3",
        hosts=("ark.cn-beijing.volces.com",),
        models=("doubao-*", "ep-*"),
        token_fields=_BOTH,
        formats=_ALL_FORMATS,
        images=("*",),
        embeddings={"doubao-embedding-large-text-250515": 2048},
        embedding_batch=256,
    ),
    ChatVendor(
        name="zhipu",
        path="/api/paas/v4",
        hosts=("open.bigmodel.cn", "api.z.ai"),
        models=("glm-*",),
        tool_choices=frozenset({"auto"}),
        schema="inline",
        images=("glm-*v*",),
        user_needed=True,
        usage_in="last",
        embeddings={"embedding-3": 2048},
        embedding_batch=64,
    ),
    ChatVendor(
        name="minimax",
        hosts=("api.minimaxi.com", "api.minimax.io"),
        models=("MiniMax-M*",),
        token_fields=_BOTH,
        tool_choices=frozenset({"auto"}),
        formats=frozenset({"text"}),
        first_system=True,
        user_needed=True,
        reasoning_field="think",
        usage_in="last",
    ),
    ChatVendor(
        name="ollama",
        hosts=("localhost:11434",),
        models=("qwen3*", "llama3.2*", "gemma3*", "gpt-oss*"),
        needs_key=False,
        formats=_ALL_FORMATS,
        tool_choices=frozenset({"auto", "none", "required", "named"}),
        images=("gemma3*", "qwen3-vl*"),
        image_urls=False,
        reasoning_field="reasoning",
        whole_calls=True,
        embeddings={"bge-m3": 1024, "nomic-embed-text": 768},
    ),
    ChatVendor(
        name="vllm",
        hosts=("localhost:8000",),
        models=("Qwen/*", "plain/*"),
        needs_key=False,
        token_fields=_BOTH,
        formats=_ALL_FORMATS,
        images=("Qwen/*-VL*", "Qwen/Qwen3.[5-9]*"),
        first_system=True,
        user_needed=True,
        tool_parser=("Qwen/*",),
        reasoning_field="reasoning",
        embeddings={"Qwen/Qwen3-Embedding-0.6B": 1024},
    ),
    ChatVendor(
        name="gpustack",
        models=("qwen3*",),
        token_fields=_BOTH,
        formats=_ALL_FORMATS,
        images=("qwen3.[5-9]*", "*-vl*"),
        first_system=True,
        user_needed=True,
        reasoning_field="reasoning",
        embeddings={"qwen3-embedding-0.6b": 1024},
    ),
    ChatVendor(
        name="openai_compatible",
        models=("*",),
        needs_key=False,
        token_fields=_BOTH,
        formats=_ALL_FORMATS,
        images=("*",),
        embeddings={"embedding": 256},
    ),
    ChatVendor(
        name="custom",
        models=("*",),
        token_fields=_BOTH,
        formats=_ALL_FORMATS,
        images=("*",),
        embeddings={"embedding": 256},
    ),
)

CHAT_VENDORS: Mapping[str, ChatVendor] = MappingProxyType({row.name: row for row in _ROWS})
"""By name."""


def fits(model: str, patterns: Sequence[str]) -> bool:
    """Whether a model is one of these."""
    return any(fnmatchcase(model, pattern) for pattern in patterns)
