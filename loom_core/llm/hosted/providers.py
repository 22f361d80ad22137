"""The vendors as classes: `DeepSeekProvider()`, `OpenAIProvider("gpt-5.6-sol")`.

Each is a `HostedProvider` with a spec of `vendors`; the key comes from the vendor's usual variable if none is
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack, get_type_hints

from pydantic import TypeAdapter, ValidationError

from loom_core.errors import ConfigError
from loom_core.keys import check_variable
from loom_core.llm import vendors
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.interface import ChatOptions
from loom_core.llm.mock import MockProvider
from loom_core.llm.vendors import ProviderSpec

if TYPE_CHECKING:
    import httpx2
    from pydantic import SecretStr

    from loom_core.llm.accounting.prices import Prices
    from loom_core.llm.hosted.limits import CircuitBreaker, RateLimits
    from loom_core.net.retry import RetryPolicy

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
    "override_spec",
]


class ProviderOptions(TypedDict, total=False):
    """Options of all these classes, in addition to the model; see `HostedProvider`."""

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
        """Set up the provider. Nothing is loaded or connected before the first request.

        Args:
            model: the model; by default the vendor's usual one.
            spec: overrides: attributes of `ProviderSpec` that differ from Loom's spec of the vendor.
            options: see `ProviderOptions`.

        Raises:
            ConfigError: there is no model or no address, the key cannot be one, `spec` is wrong, or there is
                no such option.
        """
        if unknown := options.keys() - ProviderOptions.__annotations__.keys():
            raise _no_option(type(self).__name__, min(unknown))
        super().__init__(override_spec(self.vendor, spec or {}), model=model, **options)


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
    """A model of a vendor that `spec` describes: all differences from OpenAI's plain interface."""

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
"""The provider classes by vendor name."""


_ATTRIBUTES = frozenset(field.name for field in fields(ProviderSpec))


def override_spec(spec: ProviderSpec, changes: Mapping[str, Any], *, path: str = "spec") -> ProviderSpec:
    """Override attributes of a vendor's spec, for all of its models.

    Args:
        spec: the vendor.
        changes: attributes of `ProviderSpec` and their values, as they are read from JSON: lists for tuples
            and sets, objects for `ModelRule`. `models` replaces all existing rules.
        path: where the changes are in the configuration, for messages.

    Raises:
        ConfigError: an attribute is unknown, or its value is invalid; the message names it.
    """
    values = _values(changes, path)
    if "models" in values:
        rules = [
            replace(rule, changes=_of_rule(rule.changes, f"{path}.models[{number}].changes"))
            for number, rule in enumerate(values.pop("models"))
        ]
    else:
        rules = [replace(rule, changes=_without(rule.changes, values)) for rule in spec.models]
    return replace(spec, **values, models=tuple(rules))


def _of_rule(changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    if "models" in changes:
        raise ConfigError(
            f"{path}.models: a rule cannot contain rules.", advice="Write each one next to the others."
        )
    return _values(changes, path)


def _values(changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    types = get_type_hints(ProviderSpec)
    values: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in _ATTRIBUTES:
            raise ConfigError(f"{path}.{name}: there is no such attribute.", advice=_nearest(name))
        try:
            values[name] = TypeAdapter[Any](types[name]).validate_python(value)
        except ValidationError as error:
            why = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
            raise ConfigError(
                f"{path}.{name}: {why}.", advice="Its values are described with `ProviderSpec`."
            ) from None
    if values.get("key_variable"):
        check_variable(
            values["key_variable"],
            setting=f"{path}.key_variable",
            advice="Put the key into one and name it, such as MY_KEY; or refer to it by `api_key`.",
        )
    return values


def _nearest(name: str) -> str:
    near = get_close_matches(name, sorted(_ATTRIBUTES), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(_ATTRIBUTES))}."


def _without(changes: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name not in set(names)}
