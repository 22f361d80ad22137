"""Settings for the compaction of an agent's conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.agent.argument_validation import resolve_model
from loom_core.errors import ConfigError
from loom_core.llm.interface import LLMProvider
from loom_core.runs.compressor import Compressor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom_core.agent.compaction.compaction import Compactor

__all__ = ["Compaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Compaction settings: when and how long conversations are compacted; see `Compactor`.

    Attributes:
        llm: the model that summarizes; None for the agent's own.
        window: context window of the agent's model, in tokens; None for its known value.
        warn_at: context usage that causes a warning.
        apply_at: context usage that causes a compaction.
        target: context usage after a compaction.
        compressor: shortens conversations in its own way, so that no model summarizes; None for Loom's.

    Raises:
        ConfigError: `target`, `warn_at` and `apply_at` do not grow in this order, the window is below 1,
            `llm` is not a provider, `compressor` has no `compress`, or there are both.
    """

    llm: LLMProvider | None = None
    window: int | None = None
    warn_at: float = 0.80
    apply_at: float = 0.92
    target: float = 0.5
    compressor: Compressor | None = None

    def __post_init__(self) -> None:
        if not 0 < self.target < self.warn_at <= self.apply_at <= 1 or (self.window or 1) < 1:
            raise ConfigError(
                f"A conversation cannot be compacted to {self.target:g}, with a warning at {self.warn_at:g}, "
                f"at {self.apply_at:g} of {self.window or 'all'} tokens.",
                advice="Use numbers that grow in this order, above 0 and up to 1, and a window above 0.",
            )
        if self.llm is not None:
            resolve_model(self.llm, configurations=False)
        if self.compressor is not None:
            self._validate(self.compressor)

    def _validate(self, compressor: object) -> None:
        if isinstance(compressor, type) or not isinstance(compressor, Compressor):
            raise ConfigError(
                f"{compressor!r} is not a compressor.",
                advice="Give an object with `async def compress(self, messages, *, goal, target)`.",
            )
        if self.llm is not None:
            raise ConfigError(
                "With a compressor, no model summarizes conversations.",
                advice="Give either the model or the compressor.",
            )

    def compactors(self, llm: LLMProvider, *, reserve: int | None) -> Callable[[], Awaitable[Compactor]]:
        """Return a function that creates the compactor of a run.

        The first call is slow, as lists of models are loaded.

        Args:
            llm: the agent's model.
            reserve: tokens reserved for an answer; None for the default.
        """
        window = self.window

        async def make() -> Compactor:
            from loom_core.agent.compaction.compaction import DEFAULT_RESERVE, Compactor
            from loom_core.agent.compaction.summarizer import window_of

            nonlocal window
            if window is None:
                window = await to_thread.run_sync(window_of, llm)
            return Compactor(
                self.llm or llm,
                window=window,
                reserve=reserve or DEFAULT_RESERVE,
                warn_at=self.warn_at,
                apply_at=self.apply_at,
                target=self.target,
                compressor=self.compressor,
            )

        return make
