"""Which language model decides where rules do not, if any."""

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
    """The model of a file, else that of `--provider`; None for rules alone.

    Raises:
        ConfigError: what `--provider` names is no model.
    """
    return model_from_settings(settings) if file.model is None else file.model


def model_from_settings(settings: Settings) -> ProviderConfig | None:
    """The model of `--provider`, which need not have what it takes to be asked; None where it names none.

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
    """The model, which can be asked as things are here. A keyring may be asked, which blocks.

    Raises:
        ConfigError: it cannot be.
    """
    from loom_core.llm.factory import create_provider

    llm = create_provider(config)
    if reason := llm.problem():
        cause, _, remedy = reason.partition(". ")
        raise ConfigError(
            f"The language model {llm.name} cannot be asked: {cause.rstrip('.')}.",
            advice=f"{remedy.rstrip('.')}. Or leave `model` out: then rules decide alone.".lstrip(". "),
        )
    return llm
