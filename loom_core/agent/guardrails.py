"""Guardrails: hooks that redact personal data, deny patterns, and validate answers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from loom_core.agent.hooks import AskAgain, Hooks, Veto
from loom_core.agent.notices import Notices
from loom_core.errors import ConfigError, LoomError
from loom_core.llm.interface import OutputSchema
from loom_core.llm.json_schema.values import check_schema
from loom_core.llm.structured import read_value
from loom_core.llm.text import compact_json
from loom_core.pii import PII_KINDS, PiiKind, mask_pii
from loom_core.tools.patterns import text_search
from loom_core.tools.permission.rule import leaves

if TYPE_CHECKING:
    from loom_core.runs.run import Run
    from loom_core.tools.calls import CallResult, PlannedCall

__all__ = ["AnswerValidator", "DenyPattern", "GuardrailPlace", "PiiRedaction"]

GuardrailPlace: TypeAlias = Literal["input", "calls", "results", "answer"]
"""Where a guardrail applies: the goal and messages of the user; arguments of tool calls; results of tools;
the final answer."""


class PiiRedaction(Hooks):
    """Redaction of personal data: placeholders such as `[email]` take its place; see `find_pii`.

    The model never reads what is redacted in `input` and `results`. The run's request stays in the journal as
    the caller sent it.

    Args:
        kinds: the kinds of personal data.
        on: where they are redacted: some of `input`, `results` and `answer`.

    Raises:
        ConfigError: there is no such kind, or no such place.
    """

    def __init__(
        self,
        kinds: Collection[PiiKind] = PII_KINDS,
        *,
        on: Collection[GuardrailPlace] = ("input", "results", "answer"),
    ) -> None:
        _check_names("kinds", kinds, PII_KINDS)
        _check_names("on", on, ("input", "results", "answer"))
        self._kinds = tuple(kinds)
        self._on = frozenset(on)

    @property
    def reviews_answers(self) -> bool:
        """Whether it applies to answers."""
        return "answer" in self._on

    async def before_input(self, run: Run, text: str) -> str | Veto | None:
        """Redact the goal or a message."""
        return self._redact("input", text)

    async def before_result(self, run: Run, planned: PlannedCall, result: CallResult) -> str | Veto | None:
        """Redact the result of a call."""
        return self._redact("results", result.message.text)

    async def before_answer(self, run: Run, answer: str) -> str | AskAgain | Veto | None:
        """Redact the answer."""
        return self._redact("answer", answer)

    def _redact(self, place: GuardrailPlace, text: str) -> str | None:
        if place not in self._on:
            return None
        redacted = mask_pii(text, self._kinds)
        return None if redacted == text else redacted


class DenyPattern(Hooks):
    """Denial of texts in which a regular expression matches.

    Input fails the run with the message; the model reads the message in place of a call or a result; an
    answer is sent back to the model with it.

    Args:
        pattern: the expression, in linear time (RE2 syntax); `(?i)` ignores case.
        message: why, and what to do, in a sentence.
        on: where it applies.
        most: how many answers of a run are sent back; with one more, the run fails.

    Raises:
        ConfigError: the expression is invalid, or there is no such place.
    """

    def __init__(
        self,
        pattern: str,
        message: str,
        *,
        on: Collection[GuardrailPlace] = ("input", "answer"),
        most: int = 1,
    ) -> None:
        _check_names("on", on, get_args(GuardrailPlace))
        try:
            self._search = text_search(pattern)
        except LoomError as error:
            raise ConfigError(error.message, advice=error.advice) from None
        self._message = message
        self._on = frozenset(on)
        self._most = most

    @property
    def reviews_answers(self) -> bool:
        """Whether it applies to answers."""
        return "answer" in self._on

    async def before_input(self, run: Run, text: str) -> str | Veto | None:
        """Refuse the goal or a message."""
        return self._veto("input", text)

    async def before_tool(self, run: Run, planned: PlannedCall) -> Mapping[str, Any] | Veto | None:
        """Refuse a call by its arguments: as JSON, or by a text in them, in which JSON escapes line ends."""
        arguments = json.dumps(dict(planned.arguments), ensure_ascii=False, default=repr)
        vetoes = (self._veto("calls", text) for text in (arguments, *leaves(planned.arguments)))
        return next(filter(None, vetoes), None)

    async def before_result(self, run: Run, planned: PlannedCall, result: CallResult) -> str | Veto | None:
        """Withhold a result."""
        return self._veto("results", result.message.text)

    async def before_answer(self, run: Run, answer: str) -> str | AskAgain | Veto | None:
        """Send an answer back."""
        return AskAgain(self._message, most=self._most) if self._veto("answer", answer) else None

    def _veto(self, place: GuardrailPlace, text: str) -> Veto | None:
        return Veto(self._message) if place in self._on and self._search(text) else None


class AnswerValidator(Hooks):
    """Validation of the final answer, by a function or a JSON Schema.

    Args:
        check: a function of the answer, `async` or not, that returns what is wrong, or None or an empty text
            if nothing is; or a JSON Schema of the answer.
        most: how many answers of a run are sent back to the model; with one more, the run fails.

    Raises:
        ConfigError: it is neither.
        InvalidInputError: the schema is invalid.
    """

    def __init__(
        self,
        check: Callable[[str], str | Awaitable[str | None] | None] | Mapping[str, Any],
        *,
        most: int = 1,
    ) -> None:
        self._check = check
        if isinstance(check, Mapping):
            check_schema(cast("Mapping[str, Any]", check))
        elif not callable(check):
            raise ConfigError(f"{check!r} validates nothing.", advice="Give a function, or a JSON Schema.")
        self._most = most

    async def before_answer(self, run: Run, answer: str) -> str | AskAgain | Veto | None:
        """Send an invalid answer back."""
        if callable(self._check):
            said = self._check(answer)
            problem = await said if inspect.isawaitable(said) else said
        else:
            problem = _find_problems(answer, self._check, Notices.for_goal(run.request.goal))
        return AskAgain(problem, most=self._most) if problem else None


def _find_problems(answer: str, schema: Mapping[str, Any], notices: Notices) -> str:
    """Return what is wrong with an answer, and the schema; empty if it fits."""
    _, wrong = read_value(answer, OutputSchema("answer", schema))
    listed = "\n".join(f"- {problem}" for problem in wrong)
    return f"{notices.repair.format(problems=listed)}\n{compact_json(schema)}" if wrong else ""


def _check_names(argument: str, given: Collection[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"`{argument}` has {name!r}.", advice=f"There are: {', '.join(known)}.")
