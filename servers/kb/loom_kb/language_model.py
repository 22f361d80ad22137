"""The language model that a run may be given: what is written for it, whether it can be asked, who agrees."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError
from loom_core.server.cli.console import agreed, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom_core.knowledge.sources.library import Library
    from loom_core.server.cli.health import Section

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
    """What is written for the model: by the option, else by the environment; empty for nothing."""
    return (os.environ.get(VARIABLE, "") if option is None else option).strip()


def configuration(text: str) -> str | dict[str, Any]:
    """What is written for the model as `create_provider` takes it; empty for none.

    Raises:
        ConfigError: it begins like JSON and is none. The message does not repeat it: a key may be in it.
    """
    if not text.startswith("{"):
        return "" if text == NO_MODEL else text
    try:
        return cast("dict[str, Any]", json.loads(text))
    except ValueError as error:
        raise ConfigError(
            f"What is given for --llm is no JSON: {str(error).partition(':')[0]}.",
            advice=f'Write it as \'{{"provider": "deepseek"}}\', or as deepseek/MODEL, or unset {VARIABLE}.',
        ) from None


def model_section(library: Library) -> Section | None:
    """Which model is set and whether it can be asked, for `doctor`; None without one. May ask the keyring."""
    from loom_core.server.doctor.language_model import model_section as examined_model

    return examined_model(library.language_model, otherwise=OTHER_MODEL)


async def run_with_confirmation(add: Callable[[bool], Awaitable[_Done]], *, yes: bool) -> _Done:
    """Do what a language model may have to read much for; ask the person at the terminal first.

    Args:
        add: does it; told whether somebody agreed.
        yes: whether the person agreed beforehand.

    Raises:
        InvalidInputError: there is nobody to ask, or they did not agree. Nothing was done.
    """
    from anyio import to_thread

    try:
        return await add(yes)
    except ConfirmationNeededError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InvalidInputError(error.message, advice="Agree to it with --yes.") from None
        say(f"A language model is to read {error.estimate}.")
    if not await to_thread.run_sync(agreed, abandon_on_cancel=True):
        raise InvalidInputError("Nothing was done.")
    return await add(True)
