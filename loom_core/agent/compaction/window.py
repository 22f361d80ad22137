"""How much a model reads at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from loom_core.llm.interface import LLMProvider

__all__ = ["USUAL_WINDOW", "window_of"]

USUAL_WINDOW = 128_000
"""Tokens that are taken for granted of a model of which nothing is known: nearly all that can call tools
read so much. One that reads less is told of in the configuration (`spec.window`)."""


def window_of(provider: LLMProvider, *, override: int | None = None) -> int:
    """How many tokens a conversation and its answer may have together.

    It may load lists of models, which takes most of a second the first time: call it in a thread.

    Args:
        provider: the model; of several that stand in for each other, the smallest window counts.
        override: what a configuration says; it counts before what is known.

    Raises:
        ConfigError: the override is not above 0.
    """
    if override is not None and override <= 0:
        raise ConfigError(f"The context window is {override} tokens.", advice="Use a number above 0.")
    return override or provider.window() or USUAL_WINDOW
