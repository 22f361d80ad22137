"""The language model that a run may be given: what is written for it, whether it can be asked, who agrees."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar, cast

from anyio import to_thread

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.knowledge.extraction_estimate import ConfirmationNeededError
from loom_core.server.health import Finding, Section, problem, told_by
from loom_kb.console import agreed, say

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom_core.knowledge.library import Library

__all__ = [
    "NO_MODEL",
    "VARIABLE",
    "chosen",
    "configuration",
    "model_section",
    "unasked",
    "with_agreement",
]

VARIABLE = "LOOM_KB_LLM"
NO_MODEL = "none"

_OTHER_MODEL = f"Give another --llm, or --llm {NO_MODEL} for rules alone."
_CAUSE_END = re.compile(r"[.:] (?=\S)")

_Done = TypeVar("_Done")


def chosen(option: str | None) -> str:
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
    try:
        llm = library.language_model()
    except ConfigError as error:
        finding = told_by(error, "model-unusable", remedy=_OTHER_MODEL)
        return Section(name="language model", facts={"model": None, "usable": False}, findings=[finding])
    if llm is None:
        return None
    reason = llm.problem()
    facts = {"model": f"{llm.name}/{llm.model}".rstrip("/"), "usable": not reason}
    return Section(
        name="language model", facts=facts, findings=[unasked("model-unusable", reason)] if reason else []
    )


def unasked(code: str, reason: str) -> Finding:
    """The finding that a model cannot be asked.

    Args:
        code: as in `Finding`.
        reason: why, and behind a full stop or a colon what to do.
    """
    cause, _, remedy = _CAUSE_END.sub("\n", reason, count=1).partition("\n")
    return problem(code, f"{cause[:1].upper()}{cause[1:].rstrip('.')}.", remedy.rstrip(".") or _OTHER_MODEL)


async def with_agreement(add: Callable[[bool], Awaitable[_Done]], *, yes: bool) -> _Done:
    """Do what a language model may have to read much for; ask the person at the terminal first.

    Args:
        add: does it; told whether somebody agreed.
        yes: whether the person agreed beforehand.

    Raises:
        InvalidInputError: there is nobody to ask, or they did not agree. Nothing was done.
    """
    try:
        return await add(yes)
    except ConfirmationNeededError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InvalidInputError(error.message, advice="Agree to it with --yes.") from None
        say(f"A language model is to read {error.estimate}.")
    if not await to_thread.run_sync(agreed, abandon_on_cancel=True):
        raise InvalidInputError("Nothing was done.")
    return await add(True)
