"""Specs of embedding vendors and servers, as data, as of November 2026."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EMBEDDING_VENDORS", "EmbeddingVendor", "Encoding"]

Encoding = Literal["base64", "float"]
"""Requested encoding of vectors. base64 has a quarter of the bytes; some vendors support only `float`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingVendor:
    """A vendor, or a kind of server.

    Attributes:
        name: its name in configurations.
        title: its display name.
        base_url: address of its API; empty if the user has to give it.
        model: the default model; empty if the user has to choose.
        key_variable: the environment variable that holds the key; empty if the user has to name it.
        needs_key: whether it requires one.
        docs: the vendor's documentation page.
        encoding: see `Encoding`.
        max_texts: maximum texts of a request.
        max_request_tokens: maximum tokens of a request.
        timeout: default seconds without data, after which a request has failed.
    """

    name: str
    title: str
    base_url: str = ""
    model: str = ""
    key_variable: str = ""
    needs_key: bool = True
    docs: str = ""
    encoding: Encoding = "base64"
    max_texts: int = 32
    max_request_tokens: int = 100_000
    timeout: float = 30.0


_ROWS = (
    EmbeddingVendor(
        name="openai",
        title="OpenAI",
        base_url="https://api.openai.com/v1",
        model="text-embedding-3-small",
        key_variable="OPENAI_API_KEY",
        docs="https://platform.openai.com/docs/api-reference/embeddings/create",
        max_texts=2048,
        max_request_tokens=300_000,
    ),
    EmbeddingVendor(
        name="qwen",
        title="Qwen (Alibaba Cloud Model Studio)",
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        model="text-embedding-v4",
        key_variable="DASHSCOPE_API_KEY",
        docs="https://help.aliyun.com/en/model-studio/text-embedding-synchronous-api",
        encoding="float",
        max_texts=10,
    ),
    EmbeddingVendor(
        name="zhipu",
        title="Zhipu GLM",
        base_url="https://open.bigmodel.cn/api/paas/v4",
        model="embedding-3",
        key_variable="ZAI_API_KEY",
        docs="https://docs.bigmodel.cn/api-reference/模型-api/文本嵌入",
        encoding="float",
        max_texts=64,
        max_request_tokens=8_000,
    ),
    EmbeddingVendor(
        name="doubao",
        title="Doubao (Volcano Engine Ark)",
        base_url="https://ark.cn-beijing.volces.com/api/v3",
        model="doubao-embedding-large-text-250515",
        key_variable="ARK_API_KEY",
        docs="https://www.volcengine.com/docs/82379/1302003",
        encoding="float",
        max_texts=256,
    ),
    EmbeddingVendor(
        name="gemini",
        title="Google Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai/",
        model="gemini-embedding-001",
        key_variable="GEMINI_API_KEY",
        docs="https://ai.google.dev/gemini-api/docs/openai",
        encoding="float",
        max_texts=100,
        max_request_tokens=20_000,
    ),
    EmbeddingVendor(
        name="ollama",
        title="Ollama",
        base_url="http://localhost:11434",
        key_variable="OLLAMA_API_KEY",
        needs_key=False,
        docs="https://docs.ollama.com/api/embed",
        # It loads a model at the first request, without sending data, and stops if the request is cancelled.
        # Its own timeout is five minutes: OLLAMA_LOAD_TIMEOUT.
        timeout=300.0,
    ),
    EmbeddingVendor(
        name="vllm",
        title="vLLM",
        base_url="http://localhost:8000/v1",
        key_variable="VLLM_API_KEY",
        needs_key=False,
        docs="https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        max_texts=128,
    ),
    EmbeddingVendor(
        name="gpustack",
        title="GPUStack",
        key_variable="GPUSTACK_API_KEY",
        docs="https://docs.gpustack.ai/latest/user-guide/openai-compatible-apis/",
        max_texts=128,
    ),
    # 32 texts are the default limit of text-embeddings-inference.
    EmbeddingVendor(name="openai_compatible", title="your server with OpenAI's interface", needs_key=False),
)

EMBEDDING_VENDORS: Mapping[str, EmbeddingVendor] = MappingProxyType({row.name: row for row in _ROWS})
"""By name. `local` is no vendor: its models run in this process."""
