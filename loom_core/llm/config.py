"""Configuration of a language model, in a configuration file or on a command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from loom_core.errors import ConfigError
from loom_core.keys import check_reference
from loom_core.llm.json_schema.values import readable_path
from loom_core.llm.vendors import VENDORS, AuthStyle

__all__ = [
    "BreakerSettings",
    "LimitSettings",
    "PriceSettings",
    "ProviderConfig",
    "ProviderConfigInput",
    "RetrySettings",
]

_SECRET_HEADER = re.compile(r"auth|cookie|key|secret|token", re.IGNORECASE)
_MAX_LISTED = 3


def _provider_name(name: str) -> str:
    """Normalize a vendor's name; keep a plugin's name as it is."""
    ours = name.strip().lower().replace("-", "_")
    return ours if ours in VENDORS else name.strip()


def _address(url: str) -> str:
    parts = urlsplit(url)
    if url and (parts.scheme not in {"http", "https"} or not parts.netloc):
        raise ValueError("an address begins with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError("an address must not contain a password; use `api_key` or `headers`")
    return url


def _reference(text: str) -> str:
    try:
        return check_reference(text) if text else text
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if _SECRET_HEADER.search(name):
            try:
                check_reference(value)
            except ConfigError as error:
                raise ValueError(f"{name}: {error}") from None
    return headers


def _spec(spec: dict[str, Any]) -> dict[str, Any]:
    headers: object = spec.get("headers")
    for name in cast("Mapping[str, object]", headers) if isinstance(headers, Mapping) else ():
        if _SECRET_HEADER.search(name):
            raise ValueError(f"{name} belongs under the `headers` of the model, as env:NAME or keyring:NAME")
    return spec


class _Section(BaseModel):
    # Messages do not show inputs, as one may be a key in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class RetrySettings(_Section):
    """Retry policy; see `RetryPolicy`."""

    attempts: int = Field(default=4, ge=1, description="Maximum number of attempts for a request.")
    base: float = Field(default=0.5, ge=0, description="Maximum of the first wait, in seconds.")
    cap: float = Field(default=30.0, ge=0, description="Maximum of any wait, in seconds.")
    longest_wait: float = Field(
        default=60.0, ge=0, description="In seconds; if a vendor asks for a longer wait, the request fails."
    )
    deadline: float = Field(
        default=300.0, gt=0, description="Time limit of a request with all its attempts, in seconds."
    )


class BreakerSettings(_Section):
    """Circuit breaker: stop requests for a while after repeated failures; see `CircuitBreaker`."""

    failures: int = Field(
        default=5, ge=1, description="Number of consecutive transient failures that open the circuit."
    )
    first_pause: float = Field(
        default=30.0, ge=0, description="Seconds until the first trial request; it doubles if that fails."
    )
    longest_pause: float = Field(default=300.0, ge=0, description="Maximum of the pause, in seconds.")


class LimitSettings(_Section):
    """Rate limits; see `RateLimits`."""

    rpm: int | None = Field(default=None, ge=1, description="Requests a minute.")
    tpm: int | None = Field(default=None, ge=1, description="Tokens per minute, answers included.")
    concurrency: int | None = Field(default=None, ge=1, description="Concurrent requests.")


class PriceSettings(_Section):
    """Prices of a model, in US dollars per million tokens; see `Prices`."""

    input: float = Field(ge=0, description="Price of input.")
    output: float = Field(ge=0, description="Price of output, reasoning included.")
    cache_read: float | None = Field(
        default=None, ge=0, description="Price of input read from the vendor's cache."
    )
    cache_write: float | None = Field(
        default=None, ge=0, description="Price of input written to the vendor's cache."
    )


def _parse_text(value: object) -> object:
    return _from_text(value) if isinstance(value, str) else value


def _parse_written(value: object) -> object:
    if not isinstance(value, str | Mapping | ProviderConfig):
        raise ValueError('Value should be a text such as "deepseek" or "ollama/qwen3", or an object')
    return _parse_text(cast("object", value))


def _from_text(text: str) -> dict[str, str]:
    provider, _, model = text.partition("/")
    return {"provider": provider, "model": model.strip()}


class ProviderConfig(_Section):
    """Configuration of a language model.

    It holds references to keys, not keys: `env:NAME` for an environment variable, `keyring:NAME` for an
    entry of the keyring.
    """

    provider: Annotated[str, AfterValidator(_provider_name)] = Field(
        description="A vendor that Loom knows, such as deepseek; `custom`; `mock`; or the name of a plugin."
    )
    model: str = Field(default="", description="The model; by default the vendor's usual one.")
    base_url: Annotated[str, AfterValidator(_address)] = Field(
        default="", description="Base URL of the vendor's API; by default its usual one."
    )
    api_key: Annotated[str, AfterValidator(_reference)] = Field(
        default="",
        description=(
            "Reference to the key, such as env:MY_KEY; by default the vendor's usual variable, in the "
            "environment or, if the vendor needs a key, the keyring."
        ),
    )
    auth_style: AuthStyle | None = Field(
        default=None,
        description="How the key is sent: `bearer`, or `x-api-key` for servers that speak Anthropic's format "
        "of 2023-06-01, which `custom` then speaks; by default as the vendor wants it.",
    )
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(
        default={}, description="Further headers; a value may be env:NAME or keyring:NAME, a secret must."
    )
    timeout: float = Field(
        default=120.0, gt=0, description="Timeout in seconds without data from the vendor."
    )
    retry: RetrySettings = Field(default=RetrySettings(), description="Retry policy.")
    breaker: BreakerSettings = Field(default=BreakerSettings(), description="Circuit breaker.")
    limits: LimitSettings = Field(default=LimitSettings(), description="Rate limits.")
    prices: PriceSettings | None = Field(
        default=None, description="Prices of the model; by default the vendor's list prices, if known."
    )
    spec: Annotated[dict[str, Any], AfterValidator(_spec)] = Field(
        default={},
        description="Overrides of the vendor's description: attributes of ProviderSpec.",
    )
    options: dict[str, Any] = Field(
        default={}, description="Further constructor arguments of `mock` or a plugin."
    )
    fallbacks: list[Annotated[ProviderConfig, BeforeValidator(_parse_text)]] = Field(
        default=[], description="Fallback models, tried in order if this one fails; strings are accepted."
    )

    @classmethod
    def of(cls, config: ProviderConfig | Mapping[str, Any] | str) -> ProviderConfig:
        """Create a configuration from parsed JSON, or from a text as for `from_text`.

        Raises:
            ConfigError: it is wrong; the message names the field.
        """
        if isinstance(config, ProviderConfig):
            return config
        try:
            return cls.model_validate(_parse_text(config))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            told = [
                f"{readable_path(each['loc'])}: {each['msg'].removeprefix('Value error, ').rstrip('.')}."
                for each in found[:_MAX_LISTED]
            ]
            raise ConfigError(
                f"The configuration of the language model is wrong: {' '.join(told)}",
                advice='Write it as {"provider": "deepseek", "model": "deepseek-flash"}.',
            ) from None

    @classmethod
    def from_text(cls, text: str) -> ProviderConfig:
        """Parse a configuration from a command line: `deepseek`, or `deepseek/deepseek-v4-pro`.

        Raises:
            ConfigError: it names no provider.
        """
        return cls.of(text)


ProviderConfigInput = Annotated[
    ProviderConfig, BeforeValidator(_parse_written, json_schema_input_type=ProviderConfig | str)
]
"""A language model in a configuration: an object, or a text as for `from_text`."""
