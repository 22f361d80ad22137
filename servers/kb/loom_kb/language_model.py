"""The language model of a run: its configuration, its diagnosis, and the user's confirmation of its cost."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError
from loom_core.server.cli.console import confirm, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom_core.knowledge.sources.library import Library
    from loom_core.server.cli.health import HealthSection

__all__ = [
    "NO_MODEL",
    "OTHER_MODEL",
    "VARIABLE",
    "configuration",
    "model_section",
    "model_setting",
    "run_with_confirmation",
]

VARIABLE = "LOOM_KB_LLM"
NO_MODEL = "none"

OTHER_MODEL = f"Give another --llm, or --llm {NO_MODEL} for rules alone."
_Done = TypeVar("_Done")


def model_setting(option: str | None) -> str:
    """Return the setting of the model: the option, else the environment variable; empty if not set."""
    return (os.environ.get(VARIABLE, "") if option is None else option).strip()


def configuration(text: str) -> str | dict[str, Any]:
    """Parse the setting of the model into the argument of `create_provider`; empty for no model.

    Raises:
        ConfigError: it begins like JSON, but is not. The message does not repeat it: it may hold a key.
    """
    if not text.startswith("{"):
        return "" if text == NO_MODEL else text
    try:
        return cast("dict[str, Any]", json.loads(text))
    except ValueError as error:
        raise ConfigError(
            f"The value of --llm is not valid JSON: {str(error).partition(':')[0]}.",
            advice=f'Write it as \'{{"provider": "deepseek"}}\', or as deepseek/MODEL, or unset {VARIABLE}.',
        ) from None


def model_section(library: Library) -> HealthSection | None:
    """Diagnose the configured model for `doctor`; None without one. May ask the keyring."""
    from loom_core.server.doctor.language_model import model_section as examined_model

    return examined_model(library.language_model, otherwise=OTHER_MODEL)


async def run_with_confirmation(add: Callable[[bool], Awaitable[_Done]], *, yes: bool) -> _Done:
    """Submit a job, and ask the user at the terminal first if its extraction needs confirmation.

    Args:
        add: submits it; its argument says whether the user agreed.
        yes: whether the user agreed beforehand.

    Raises:
        InvalidInputError: there is no terminal to ask at, or the user declined. Nothing was done.
    """
    from anyio import to_thread

    try:
        return await add(yes)
    except ConfirmationNeededError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InvalidInputError(error.message, advice="Agree to it with --yes.") from None
        say(f"A language model is to read {error.estimate}.")
    if not await to_thread.run_sync(confirm, abandon_on_cancel=True):
        raise InvalidInputError("Nothing was done.")
    return await add(True)
