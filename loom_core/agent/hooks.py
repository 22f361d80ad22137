"""Hooks: let a program inspect, change or veto input, model requests, tool calls, results and answers."""

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

__all__ = ["AskAgain", "GuardrailError", "HookError", "Hooks", "Veto", "call_hook", "review_input"]

_T = TypeVar("_T")
_P = ParamSpec("_P")


class HookError(LoomError):
    """A hook raised an error; the run fails with it."""


class GuardrailError(LoomError):
    """A hook refused the input or the answer; the run fails with its reason."""


@dataclass(frozen=True, slots=True)
class Veto:
    """Veto of a hook.

    Attributes:
        reason: why, in a sentence. The model reads it for a tool call and its result; people read it
            otherwise.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Rejection of an answer: the model answers again.

    Attributes:
        message: what is wrong, and what to do; the model reads it.
        most: how many answers of a run may be rejected; with one more, the run fails.
    """

    message: str
    most: int = 1


class Hooks:
    """Hooks around the input, every request to the model, every tool call, compactions, and the answer.

    The methods here do nothing; override what you need. Those named `before_…` may change or veto what
    comes next. All are awaited: the run continues when they return, and fails if one raises. Several hooks
    run in order, each on the result of the one before. After a crash a hook may be called again for the same
    thing: it is part of the action, not of the journal.
    """

    @property
    def reviews_answers(self) -> bool:
        """Whether `before_answer` may change or refuse an answer; by default, if it is overridden."""
        return type(self).before_answer is not Hooks.before_answer

    async def before_input(self, run: Run, text: str) -> str | Veto | None:
        """Handle the goal, or a message of the user while the run works, before the model reads it.

        Returns:
            None for no change; another text; or a veto, which fails the run.
        """
        return None

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

    async def before_result(self, run: Run, planned: PlannedCall, result: CallResult) -> str | Veto | None:
        """Handle the result of a call, before it is in the journal and the model reads it.

        Returns:
            None for no change; another text, which also takes the place of structured data; or a veto: the
            model reads its reason in place of the result. If this raises, the model never reads the result.
        """
        return None

    async def after_tool(self, run: Run, planned: PlannedCall, result: CallResult) -> None:
        """Handle the result of a call, before the model reads it. The call may not have run; see `status`."""

    async def before_answer(self, run: Run, answer: str) -> str | AskAgain | Veto | None:
        """Handle the final answer, before the run ends with it; with an output schema it is JSON.

        With such a hook, text of the model is not streamed before this: only the answer that passes is.

        Returns:
            None for no change; another answer; `AskAgain`; or a veto, which fails the run without output.
        """
        return None

    async def before_compaction(self, run: Run, history: Sequence[Message]) -> Veto | None:
        """Handle the conversation before a compaction; a veto leaves it unchanged."""
        return None

    async def after_compaction(self, run: Run, compacted: CompactionResult) -> None:
        """Handle the conversation after a compaction."""


_ANSWERS: Mapping[str, tuple[type, ...]] = {
    "before_input": (str, Veto, NoneType),
    "before_model": (ChatRequest, Veto),
    "before_result": (str, Veto, NoneType),
    "before_answer": (str, AskAgain, Veto, NoneType),
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


async def review_input(hooks: Sequence[Hooks], run: Run, text: str) -> str:
    """Return the goal or a message of the user as the model reads it.

    Args:
        hooks: the hooks, in order.
        run: the run.
        text: what the user wrote.

    Raises:
        GuardrailError: a hook vetoed it.
        HookError: a hook raised an error.
    """
    for each in hooks:
        said = await call_hook(each, "before_input", each.before_input, run, text)
        if isinstance(said, Veto):
            raise GuardrailError(f"The input was refused: {said.reason}", advice="Change it.")
        text = text if said is None else said
    return text
