"""Where embedding models are asked over the network, as data: vendors and servers, as of November 2026."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EMBEDDING_VENDORS", "EmbeddingVendor", "Encoding"]

Encoding = Literal["base64", "float"]
"""How numbers are asked for. base64 is a quarter of the bytes; some vendors know only `float`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingVendor:
    """A vendor, or a kind of server.

    Attributes:
        name: what it is called in a configuration.
        title: what people call it.
        base_url: where its interface is; empty where the user has to say.
        model: the default model; empty where the user has to say.
        key_variable: the environment variable that holds the key; empty where the user has to say.
        needs_key: whether it requires one.
        docs: the vendor's page that says all this.
        encoding: see `Encoding`.
        max_texts: how many texts a request may hold.
        max_request_tokens: how many tokens they may have together.
        timeout: seconds without a sign of life, after which a request has failed, unless the user says.
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
        # It loads a model at the first request, says nothing meanwhile, and gives up when that is given up.
        # Five minutes are what it gives itself: OLLAMA_LOAD_TIMEOUT.
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
    # 32 texts are what text-embeddings-inference takes unless it is told otherwise.
    EmbeddingVendor(name="openai_compatible", title="your server with OpenAI's interface", needs_key=False),
)

EMBEDDING_VENDORS: Mapping[str, EmbeddingVendor] = MappingProxyType({row.name: row for row in _ROWS})
"""By name. `local` is no vendor: its models run in this process."""
