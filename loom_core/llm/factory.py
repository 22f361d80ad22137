"""Factory of language models by configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loom_core.errors import ConfigError
from loom_core.keys import resolve
from loom_core.llm.accounting.prices import Prices
from loom_core.llm.config import ProviderConfig
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.hosted.limits import CircuitBreaker, RateLimits
from loom_core.llm.hosted.providers import PROVIDERS
from loom_core.net.retry import RetryPolicy
from loom_core.plugin_registry import create, list_registered

if TYPE_CHECKING:
    from loom_core.llm.interface import LLMProvider

__all__ = ["create_model", "create_provider", "provider_choices", "provider_names"]

# Settings that plugins handle themselves, if at all: they get only the others.
_FOR_VENDORS = ("auth_style", "headers", "timeout", "retry", "breaker", "limits", "prices", "spec")


def create_provider(config: ProviderConfig | Mapping[str, Any] | str) -> LLMProvider:
    """Create a language model from its configuration. Nothing loads or connects before the first request.

    Args:
        config: a configuration; parsed JSON; or a text such as `deepseek`, or `deepseek/deepseek-v4-pro`.

    Raises:
        ConfigError: the configuration is invalid, there is no such provider, no model or no address, or a
            referenced secret is missing. The message says which fallback is wrong.
    """
    read = ProviderConfig.of(config)
    provider = _vendor(read) if read.provider in PROVIDERS else _plugin(read)
    if not read.fallbacks:
        return provider
    return FallbackProvider([provider, *(_fallback(*each) for each in enumerate(read.fallbacks))])


create_model = create_provider
"""Alias: the same function in the public API."""


def check_provider(config: ProviderConfig) -> ProviderConfig:
    """Check that the provider exists, and return the configuration.

    Raises:
        ConfigError: there is no such provider.
    """
    if config.provider not in provider_names():
        raise ConfigError(
            f"provider: there is no {config.provider!r}.",
            advice=f"Choose one of: {', '.join(provider_choices())}.",
        )
    return config


def provider_names() -> list[str]:
    """Return all values of `ProviderConfig.provider`, plugins included, sorted."""
    return sorted({*PROVIDERS, *list_registered("llm")})


def provider_choices() -> list[str]:
    """Return the providers without `mock`, which is no real language model."""
    return [name for name in provider_names() if name != "mock"]


def _fallback(number: int, config: ProviderConfig) -> LLMProvider:
    try:
        return create_provider(config)
    except ConfigError as error:
        where = f"fallbacks[{number}] ({config.provider!r})"
        raise ConfigError(f"{where}: {error.message}", advice=error.advice) from error


def _vendor(config: ProviderConfig) -> LLMProvider:
    if config.options:
        raise ConfigError(
            f"options: {config.provider} takes none.",
            advice="They are for `mock` and plugins; a vendor's settings go under `spec`.",
        )
    return PROVIDERS[config.provider](
        config.model,
        spec=_spec(config),
        api_key=resolve(config.api_key) if config.api_key else None,
        base_url=config.base_url,
        timeout=config.timeout,
        headers={name: _value(value) for name, value in config.headers.items()},
        retry=RetryPolicy(**config.retry.model_dump()),
        breaker=CircuitBreaker(**config.breaker.model_dump()),
        limits=RateLimits(**config.limits.model_dump()),
        prices=None if config.prices is None else Prices(**config.prices.model_dump()),
    )


def _spec(config: ProviderConfig) -> Mapping[str, Any]:
    """Return the overrides of the vendor's spec, with those that follow from `auth_style`."""
    if config.auth_style is None:
        return config.spec
    anthropic = config.provider == "custom" and config.auth_style == "x-api-key"
    wire = {"wire": "anthropic_messages"} if anthropic else {}
    return {**wire, "auth_style": config.auth_style, **config.spec}


def _plugin(config: ProviderConfig) -> LLMProvider:
    check_provider(config)
    for name in _FOR_VENDORS:
        if name in config.model_fields_set:
            raise ConfigError(
                f"{name}: {config.provider} does not take it.", advice="What it takes goes under `options`."
            )
    given: dict[str, object] = {
        name: getattr(config, name) for name in ("model", "base_url") if getattr(config, name)
    }
    if config.api_key:
        given["api_key"] = resolve(config.api_key)
    return create("llm", config.provider, **{**config.options, **given})


def _value(value: str) -> str:
    """Return a header's value; resolve it if it is a reference."""
    return resolve(value).get_secret_value() if value.startswith(("env:", "keyring:")) else value
