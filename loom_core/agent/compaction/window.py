"""Context window of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from loom_core.llm.interface import LLMProvider

__all__ = ["USUAL_WINDOW", "window_of"]

USUAL_WINDOW = 128_000
"""Default context window of an unknown model, in tokens: nearly all models with tool calls have at least this
much. Configure a smaller one by `spec.window`."""


def window_of(provider: LLMProvider, *, override: int | None = None) -> int:
    """Return the context window of a model: the maximum tokens of a conversation and its answer together.

    It may load lists of models, which takes most of a second the first time: call it in a thread.

    Args:
        provider: the model; for a fallback chain, the smallest window counts.
        override: the configured value, which takes precedence.

    Raises:
        ConfigError: the override is not above 0.
    """
    if override is not None and override <= 0:
        raise ConfigError(f"The context window is {override} tokens.", advice="Use a number above 0.")
    return override or provider.window() or USUAL_WINDOW
