"""Choice of the language model for messages that no rule decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from loom_core.flow.config import FlowFile
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.interface import LLMProvider
    from loom_flow.settings import Settings

__all__ = ["build_model", "choose_model", "model_from_settings"]


def choose_model(file: FlowFile, settings: Settings) -> ProviderConfig | None:
    """Return the model of a file, else that of `--provider`; None for rules alone.

    Raises:
        ConfigError: `--provider` names no model.
    """
    return model_from_settings(settings) if file.model is None else file.model


def model_from_settings(settings: Settings) -> ProviderConfig | None:
    """Return the model of `--provider`, even if it is not usable here; None if there is none.

    Raises:
        ConfigError: there is no such provider.
    """
    if not settings.provider:
        return None
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.factory import provider_choices

    config = ProviderConfig.from_text(settings.provider)
    if config.provider not in provider_choices():
        raise ConfigError(
            f"--provider: there is no {config.provider[:80]!r}.",
            advice=f"Choose one of: {', '.join(provider_choices())}.",
        )
    return config


def build_model(config: ProviderConfig) -> LLMProvider:
    """Build a model that is usable here. Blocks if a keyring is read.

    Raises:
        ConfigError: it is not usable.
    """
    from loom_core.llm.factory import create_provider

    llm = create_provider(config)
    if reason := llm.problem():
        cause, _, remedy = reason.partition(". ")
        raise ConfigError(
            f"The language model {llm.name} is not usable: {cause.rstrip('.')}.",
            advice=f"{remedy.rstrip('.')}. Or leave `model` out: then rules decide alone.".lstrip(". "),
        )
    return llm
