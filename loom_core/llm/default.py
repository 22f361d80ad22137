"""The default language model of this process, see `loom_core.config.set_default_llm`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.llm.interface import LLMProvider

__all__ = ["default_provider", "set_default"]

_lock = threading.Lock()
_default: LLMProvider | str | None = None


def set_default(llm: LLMProvider | str | None) -> None:
    """Set the default: a provider, a configuration for `create_provider`, or None for none."""
    global _default
    with _lock:
        _default = llm


def default_provider() -> LLMProvider | None:
    """Return the default model; if it is a configuration, create the model once and share it.

    Raises:
        ConfigError: no provider can be created from the configuration, for example without its key.
    """
    global _default
    with _lock:
        if isinstance(_default, str):
            from loom_core.llm.factory import create_provider

            _default = create_provider(_default)
        return _default
