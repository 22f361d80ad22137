"""Choice of the language model of a profile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.llm.vendors import VENDORS

if TYPE_CHECKING:
    from loom_agent.profiles.profile_config import ProfileConfig
    from loom_agent.settings import Settings
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.interface import LLMProvider

__all__ = ["MOCK", "choose_model", "create_model", "is_demonstration"]

MOCK = "mock"
"""The provider name of the demonstration."""


def choose_model(profile: ProfileConfig, settings: Settings) -> tuple[ProviderConfig, str]:
    """Choose the model of a profile; return its configuration and the reason.

    Raises:
        ConfigError: there is none; the message says exactly what to set.
    """
    from loom_core.llm.config import ProviderConfig

    if profile.model is not None:
        return profile.model, "the profile names it"
    if settings.provider:
        return ProviderConfig.from_text(settings.provider), "--provider names it"
    variables = {
        row.key_variable: name for name, row in VENDORS.items() if row.needs_key and row.key_variable
    }
    for variable, name in variables.items():
        if os.environ.get(variable):
            return ProviderConfig.from_text(name), f"{variable} is set"
    raise ConfigError(
        "There is no language model: none is configured, and no vendor's key is in the environment of this "
        "server.",
        advice=f"Set one of {', '.join(variables)} in the environment of the server (`env` in the client's "
        f'configuration), or write {{"profiles": {{"default": {{"model": "ollama/qwen3"}}}}}} into '
        f"{settings.config}. To see everything work without a model, start it with --provider {MOCK}.",
    )


def is_demonstration(config: ProviderConfig) -> bool:
    """Whether a configuration is the demonstration, not a custom script of the mock provider."""
    return config.provider == MOCK and not config.options


def create_model(config: ProviderConfig) -> LLMProvider:
    """Create a model and check that it is usable. Blocks, as it may ask the keyring.

    Raises:
        ConfigError: it is not usable.
    """
    if is_demonstration(config):
        from loom_agent.profiles.demonstration import demonstration_model

        return demonstration_model()
    from loom_core.llm.factory import create_provider

    llm = create_provider(config)
    if reason := llm.problem():
        cause, _, remedy = reason.partition(". ")
        raise ConfigError(
            f"The language model {llm.name} is not usable: {cause.rstrip('.')}.",
            advice=remedy and f"{remedy.rstrip('.')}.",
        )
    return llm
