"""The vendors as classes: `DeepSeekProvider()`, `OpenAIProvider("gpt-5.6-sol")`.

Each is a `HostedProvider` with a row of `vendors`; the key comes from the usual variable of the vendor where
none is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack

from loom_core.errors import ConfigError
from loom_core.llm import vendors
from loom_core.llm.hosted import HostedProvider
from loom_core.llm.interface import ChatOptions
from loom_core.llm.mock import MockProvider
from loom_core.llm.spec import ProviderSpec
from loom_core.llm.spec_changes import changed

if TYPE_CHECKING:
    import httpx2
    from pydantic import SecretStr

    from loom_core.llm.breaker import CircuitBreaker
    from loom_core.llm.limits import RateLimits
    from loom_core.llm.prices import Prices
    from loom_core.retry import RetryPolicy

__all__ = [
    "PROVIDERS",
    "AnthropicProvider",
    "CustomProvider",
    "DeepSeekProvider",
    "DoubaoProvider",
    "GPUStackProvider",
    "GeminiProvider",
    "KimiProvider",
    "MiniMaxProvider",
    "MockProvider",
    "NamedProvider",
    "OllamaProvider",
    "OpenAICompatibleProvider",
    "OpenAIProvider",
    "ProviderOptions",
    "QwenProvider",
    "VLLMProvider",
    "ZhipuProvider",
]


class ProviderOptions(TypedDict, total=False):
    """What all of these classes take besides the model; see `HostedProvider`."""

    api_key: str | SecretStr | None
    base_url: str
    timeout: float
    headers: Mapping[str, str] | None
    retry: RetryPolicy | None
    breaker: CircuitBreaker | None
    limits: RateLimits | None
    prices: Prices | None
    http_client: httpx2.AsyncClient | None


class NamedProvider(HostedProvider):
    """A model of a vendor that Loom knows by name."""

    vendor: ClassVar[ProviderSpec]

    def __init__(
        self, model: str = "", *, spec: Mapping[str, Any] | None = None, **options: Unpack[ProviderOptions]
    ) -> None:
        """Say what to ask, and how. Nothing is loaded or connected before the first request.

        Args:
            model: the model; by default the vendor's usual one.
            spec: attributes of `ProviderSpec` that are different from what Loom knows of the vendor.
            options: see `ProviderOptions`.

        Raises:
            ConfigError: there is no model or no address, the key cannot be one, `spec` is wrong, or there is
                no such option.
        """
        if unknown := options.keys() - ProviderOptions.__annotations__.keys():
            raise _no_option(type(self).__name__, min(unknown))
        super().__init__(changed(self.vendor, spec or {}), model=model, **options)


def _no_option(provider: str, name: str) -> ConfigError:
    if name in ChatOptions.__annotations__:
        advice = (
            f"Give it with a request, `chat(messages, {name}=…)`; an agent has `options={{{name!r}: …}}`."
        )
    elif name in ProviderSpec.__annotations__:
        advice = f"Put it into `spec={{{name!r}: …}}`."
    else:
        advice = f"There are: {', '.join(sorted(ProviderOptions.__annotations__))}."
    return ConfigError(f"{provider} has no option {name!r}.", advice=advice)


class OpenAIProvider(NamedProvider):
    """OpenAI's models."""

    vendor = vendors.OPENAI


class AnthropicProvider(NamedProvider):
    """Anthropic's models: Claude."""

    vendor = vendors.ANTHROPIC


class DeepSeekProvider(NamedProvider):
    """DeepSeek's models."""

    vendor = vendors.DEEPSEEK


class QwenProvider(NamedProvider):
    """Qwen (通义千问), by Alibaba Cloud's Model Studio."""

    vendor = vendors.QWEN


class GeminiProvider(NamedProvider):
    """Google's models: Gemini."""

    vendor = vendors.GEMINI


class KimiProvider(NamedProvider):
    """Moonshot AI's models: Kimi (月之暗面). Keys of platform.moonshot.cn need its address as `base_url`."""

    vendor = vendors.KIMI


class DoubaoProvider(NamedProvider):
    """Doubao (豆包), by Volcano Engine Ark; the model may be the id of an endpoint, `ep-…`."""

    vendor = vendors.DOUBAO


class ZhipuProvider(NamedProvider):
    """Zhipu's models (智谱): GLM. Keys of z.ai need its address as `base_url`."""

    vendor = vendors.ZHIPU


class MiniMaxProvider(NamedProvider):
    """MiniMax's models. Keys of platform.minimaxi.com need its address as `base_url`."""

    vendor = vendors.MINIMAX


class OllamaProvider(NamedProvider):
    """A model that Ollama runs; on this machine, unless `base_url` says otherwise."""

    vendor = vendors.OLLAMA


class VLLMProvider(NamedProvider):
    """A model that vLLM serves; on this machine, unless `base_url` says otherwise."""

    vendor = vendors.VLLM


class GPUStackProvider(NamedProvider):
    """A model of a GPUStack cluster, which is at `base_url`."""

    vendor = vendors.GPUSTACK


class OpenAICompatibleProvider(NamedProvider):
    """A model behind OpenAI's interface, which is at `base_url`."""

    vendor = vendors.OPENAI_COMPATIBLE


class CustomProvider(NamedProvider):
    """A model of a vendor that `spec` describes: all that differs from OpenAI's interface at its plainest."""

    vendor = vendors.CUSTOM


PROVIDERS: Mapping[str, type[NamedProvider]] = MappingProxyType(
    {
        provider.vendor.name: provider
        for provider in (
            OpenAIProvider,
            AnthropicProvider,
            DeepSeekProvider,
            QwenProvider,
            GeminiProvider,
            OllamaProvider,
            KimiProvider,
            DoubaoProvider,
            ZhipuProvider,
            MiniMaxProvider,
            VLLMProvider,
            GPUStackProvider,
            OpenAICompatibleProvider,
            CustomProvider,
        )
    }
)
"""By the name of their vendor."""
