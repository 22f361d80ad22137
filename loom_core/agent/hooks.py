"""Hooks: let a program inspect, change or veto model requests, tool calls and compactions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from loom_core.errors import LoomError
from loom_core.llm.interface import ChatRequest

if TYPE_CHECKING:
    from loom_core.agent.compaction.compaction import CompactionResult
    from loom_core.llm.interface import LLMResponse
    from loom_core.llm.messages import Message
    from loom_core.runs.run import Run
    from loom_core.tools.calls import CallResult, PlannedCall

__all__ = ["HookError", "Hooks", "Veto", "call_hook"]

_T = TypeVar("_T")
_P = ParamSpec("_P")


class HookError(LoomError):
    """A hook raised an error; the run fails with it."""


@dataclass(frozen=True, slots=True)
class Veto:
    """Veto of a hook.

    Attributes:
        reason: why, in a sentence. The model reads it for a tool call; people read it otherwise.
    """

    reason: str


class Hooks:
    """Hooks around every request to the model, every tool call, and every compaction.

    The methods here do nothing; override what you need. All are awaited: the run continues when they return,
    and fails if one raises. Several hooks run in order, each on the result of the one before. After a crash
    a hook may be called again for the same thing: it is part of the action, not of the journal.
    """

    async def before_model(self, run: Run, request: ChatRequest) -> ChatRequest | Veto:
        """Return the request to send; a veto fails the run. Changes affect this one request only."""
        return request

    async def after_model(self, run: Run, response: LLMResponse) -> None:
        """Handle an answer of the model; it is in the journal already."""

    async def before_tool(self, run: Run, planned: PlannedCall) -> Mapping[str, Any] | Veto | None:
        """Handle a call before it runs, and before people are asked to approve it.

        Returns:
            None for no change; other arguments, which are validated again; or a veto.
        """
        return None

    async def after_tool(self, run: Run, planned: PlannedCall, result: CallResult) -> None:
        """Handle the result of a call, before the model reads it. The call may not have run; see `status`."""

    async def before_compaction(self, run: Run, history: Sequence[Message]) -> Veto | None:
        """Handle the conversation before a compaction; a veto leaves it unchanged."""
        return None

    async def after_compaction(self, run: Run, compacted: CompactionResult) -> None:
        """Handle the conversation after a compaction."""


_ANSWERS: Mapping[str, tuple[type, ...]] = {
    "before_model": (ChatRequest, Veto),
    "before_tool": (Mapping, Veto, NoneType),
    "before_compaction": (Veto, NoneType),
}


async def call_hook(
    hooks: Hooks, name: str, hook: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Call a hook, and check its return value.

    Args:
        hooks: the object with the hook.
        name: name of the hook.
        hook: the method of this name.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Raises:
        HookError: the hook raised an exception, which is the cause of this one, or returned a wrong type.
    """
    where = f"The hook {type(hooks).__qualname__}.{name}"
    advice = f"See {type(hooks).__module__}; the run can be resumed when the hook is fixed."
    try:
        said = hook(*args, **kwargs)
        if not inspect.isawaitable(said):  # pyright: ignore[reportUnnecessaryComparison]
            raise HookError(f"{where} is not `async`.", advice=advice)
        answer = await said
    except HookError:
        raise
    except Exception as error:
        told = str(error) if isinstance(error, LoomError) else f"{type(error).__name__}: {error}"
        raise HookError(f"{where} failed: {told.rstrip(': .')}.", advice=advice) from error
    if name in _ANSWERS and not isinstance(answer, _ANSWERS[name]):
        wanted = " or ".join(f"`{each.__name__}`" for each in _ANSWERS[name]).replace("NoneType", "None")
        raise HookError(f"{where} returned {answer!r}; expected {wanted}.", advice=advice)
    return answer
