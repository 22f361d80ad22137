"""The language model of `ask`: created on first use, and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.interface import LLMProvider
    from loom_query.configuration.query_file import QueryFile
    from loom_query.federation.engine_loader import EngineLoader

__all__ = ["LanguageModel"]

_KEYRING_SECONDS = 5.0  # it may ask the user; listing the sources does not wait for that


class LanguageModel:
    """Cache of the language model that the current configuration names.

    Args:
        engine: its `turn` is held while modules are imported.
    """

    def __init__(self, engine: EngineLoader) -> None:
        self._engine = engine
        self._made: list[tuple[ProviderConfig, LLMProvider]] = []

    def of(self, file: QueryFile) -> LLMProvider | None:
        """Return the model that a configuration names, or None. May read a keyring, which blocks.

        Raises:
            ConfigError: the configured model cannot be used.
        """
        if file.llm_problem:
            raise ConfigError(file.llm_problem)
        if file.llm is None:
            return None
        known = next((model for config, model in self._made if config == file.llm), None)
        if known is None:
            from loom_core.llm.factory import create_provider

            known = create_provider(file.llm)
            self._made.append((file.llm, known))
        return known

    async def get(self, file: QueryFile) -> LLMProvider | None:
        """Return the model as `of` does, without blocking."""
        async with self._engine.turn:
            return await to_thread.run_sync(self.of, file)

    async def problem(self, file: QueryFile) -> str:
        """Say why the model cannot be asked, such as a missing key, and what to do; empty if unknown."""

        def find_problem() -> str:
            try:
                model = self.of(file)
            except ConfigError as error:
                return f"The language model of `ask` cannot be used: {error}"
            reason = model.problem() if model is not None else ""
            return f"The language model of `ask` cannot be asked: {reason.rstrip('.')}." if reason else ""

        if file.llm_problem:  # which says where it is
            return file.llm_problem
        if file.llm is None:
            return ""
        with anyio.move_on_after(_KEYRING_SECONDS):
            async with self._engine.turn:
                return await to_thread.run_sync(find_problem, abandon_on_cancel=True)
        return ""

    async def close(self) -> None:
        """Close the connections of all models."""
        for _, model in self._made:
            await model.aclose()
