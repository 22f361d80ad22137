"""What a program may have a say in while a run goes on."""

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
    """A hook has raised an error; the run fails with it."""


@dataclass(frozen=True, slots=True)
class Veto:
    """What a hook does not want done.

    Attributes:
        reason: why, in a sentence. Of a call the model reads it, of anything else people.
    """

    reason: str


class Hooks:
    """Called around every request to the model, every call of a tool, and every compaction.

    These here do nothing.

    Override what you need. All are awaited: the run goes on when they return, and fails where one raises.
    Several are asked in order, each being given what the one before it made. After a crash a hook may be
    called again for what it was called for before: it is part of what is done, not of the journal.
    """

    async def before_model(self, run: Run, request: ChatRequest) -> ChatRequest | Veto:
        """What the model is asked instead; a veto fails the run. It changes this one request only."""
        return request

    async def after_model(self, run: Run, response: LLMResponse) -> None:
        """The model has answered; it is in the journal already."""

    async def before_tool(self, run: Run, planned: PlannedCall) -> Mapping[str, Any] | Veto | None:
        """A call is about to run, or people are about to be asked if it may.

        Returns:
            None to let it be; other arguments, which are checked anew; or a veto.
        """
        return None

    async def after_tool(self, run: Run, planned: PlannedCall, result: CallResult) -> None:
        """A call has its result, which the model reads next. It may not have run at all; see its status."""

    async def before_compaction(self, run: Run, history: Sequence[Message]) -> Veto | None:
        """The conversation is about to be shortened; a veto leaves it as it is."""
        return None

    async def after_compaction(self, run: Run, compacted: CompactionResult) -> None:
        """It has been shortened."""


_ANSWERS: Mapping[str, tuple[type, ...]] = {
    "before_model": (ChatRequest, Veto),
    "before_tool": (Mapping, Veto, NoneType),
    "before_compaction": (Veto, NoneType),
}


async def call_hook(
    hooks: Hooks, name: str, hook: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Call a hook, and check what it returns.

    Args:
        hooks: whose it is.
        name: of the hook.
        hook: the method of this name.
        args: what it is called with.
        kwargs: likewise.

    Raises:
        HookError: it raised something, which is the cause of this, or said what it cannot say.
    """
    where = f"The hook {type(hooks).__qualname__}.{name}"
    advice = f"Look into {type(hooks).__module__}; the run can be resumed when it is mended."
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
        raise HookError(f"{where} has returned {answer!r}, which is no {wanted}.", advice=advice)
    return answer
