"""Arguments of tools, prompts and resources: validation, and injection of the call's context."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Literal

from loom_core.server.calls.context import ToolContext
from loom_core.tools.function_arguments import FunctionArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["arguments_of", "values_for"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # hosts prefix the server's name, and drop names over 60


def arguments_of(
    function: Callable[..., object],
    name: str,
    *,
    kind: Literal["tool", "prompt"] = "tool",
    keywords: Mapping[str, Any] | None = None,
) -> FunctionArguments:
    """Derive the arguments of a served function from its signature.

    Args:
        function: the function.
        name: its name for clients.
        kind: its kind, for errors.
        keywords: see `FunctionArguments.of`.

    Raises:
        ValueError: hosts do not accept the name, or the function is not async; or as for
            `FunctionArguments.of`.
        NameError: an annotation names something that the function's module does not have.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{kind} {name!r}: a name is lower case letters, digits and _, at most 40 of them")
    if not inspect.iscoroutinefunction(function):
        raise ValueError(f"{kind} {name!r}: the function must be async; blocking work belongs in a thread")
    return FunctionArguments.of(function, name, context=ToolContext, kind=kind, keywords=keywords)


def values_for(
    arguments: FunctionArguments, given: Mapping[str, Any], context: ToolContext
) -> dict[str, Any]:
    """Validate the arguments of a function; add the call's context if it wants it.

    Raises:
        InvalidInputError: as for `FunctionArguments.parse`.
    """
    values = arguments.parse(given)
    return values | {arguments.context_name: context} if arguments.context_name else values
