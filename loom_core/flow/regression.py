"""Regression test of a flow file: messages with expected results in JSON Lines, and a report of differences.

    {"message": "我要请3天假", "session": "a", "expect": {"flow": "leave", "inputs": {"days": 3}}}
    {"message": "感冒了", "session": "a", "expect": {"action": "answer", "inputs": {"reason": "感冒了"}}}
    {"message": "我想休息几天", "decision": {"action": "flow", "target": "leave"}, "expect": {"how": "model"}}

Nothing is sent: requests get an empty object as response, or what a line of `answers` says, which holds for
the lines after it: `{"answers": {"GET /slots": {"free": ["15:00"]}}}`, by method and address as in the file.
Lines of one session follow each other. `decision` is the model's decision about the message; without it
there is none. If only rules are tested, lines with a decision are compared with `expect_rules`; without it,
they are skipped with the following lines of their session.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from loom_core.config_file import ConfigText
from loom_core.errors import ConfigError, LLMError, LoomError
from loom_core.flow.executor.steps.runner import CHOICE
from loom_core.flow.http import EndpointCaller
from loom_core.flow.http.response import EndpointResult
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.responses.reply import RouteAction, RouteHow
from loom_core.flow.understanding.moments import situation
from loom_core.llm.mock import MockProvider
from loom_core.runs.journal import Journal

if TYPE_CHECKING:
    from loom_core.flow.config.flow_file import LoadedFlows
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.config.models_endpoint import EndpointConfig
    from loom_core.flow.expressions import ExpressionValues
    from loom_core.flow.responses.reply import FlowReply
    from loom_core.llm.interface import ChatRequest, LLMProvider
    from loom_core.tools.interface import Tool

__all__ = [
    "Difference",
    "Expectation",
    "RecordingCaller",
    "RegressionReport",
    "Utterance",
    "check_utterances",
    "read_utterances",
]

_ANSWER = "(an answer)"
_DEPTH = 3  # levels of a line whose values have positions in messages
_ADVICE = "Correct that line; docs/flow.md has all keys."


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Expectation(_StrictModel):
    """The expected result of a message; omitted fields may have any value."""

    action: str = Field(default="", description="What is done, as `RoutingOutcome.action`.")
    how: str = Field(default="", description="What decides, as `RoutingOutcome.how`.")
    flow: str | None = Field(default=None, description="The flow that it is about; empty for none.")
    inputs: dict[str, JsonValue] = Field(default={}, description="Inputs of the flow; null: not given yet.")
    candidates: list[str] | None = Field(default=None, description="The flows of which one may be meant.")
    status: str = Field(default="", description="The status of the reply, as `FlowReply.status`.")


class _Answers(_StrictModel):
    answers: dict[str, JsonValue]


class Utterance(_StrictModel):
    """A line of the file."""

    message: str = Field(description="What the user says.")
    expect: Expectation = Field(description="What is expected.")
    session: str = Field(default="", description="The conversation; lines of one name follow each other.")
    decision: dict[str, JsonValue] | None = Field(default=None, description="The model's decision about it.")
    expect_rules: Expectation | None = Field(default=None, description="What is expected without the model.")
    context: dict[str, JsonValue] = Field(default={}, description="Variables that it brings.")
    now: AwareDatetime | None = Field(
        default=None,
        strict=False,
        description="When it is said, as 2026-12-01T10:00:00+08:00: tomorrow counts from there.",
    )
    note: str = Field(default="", description="A comment for people.")
    answers: dict[str, JsonValue] = Field(
        default={}, exclude=True, description="Bodies of responses, by method and address."
    )
    line: int = Field(default=0, exclude=True, description="Line number, from 1.")


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference from the expected result.

    Attributes:
        line: line number, from 1.
        message: the user's message.
        what: `action`, `how`, `flow`, `inputs.<name>`, `candidates`, `status`, or `error`.
        expected: the expected value.
        found: the actual value.
    """

    line: int
    message: str
    what: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        wanted, found = (
            json.dumps(each, ensure_ascii=False, default=str) for each in (self.expected, self.found)
        )
        return f"line {self.line}: {self.message!r}: {self.what} is {found}, not {wanted}"


@dataclass(frozen=True, slots=True)
class RegressionReport:
    """Result of a regression test.

    Attributes:
        checked: number of lines that were checked.
        left_out: numbers of the lines that were skipped because they need a model.
        differences: differences from the expected results.
    """

    checked: int
    left_out: tuple[int, ...] = ()
    differences: tuple[Difference, ...] = ()

    @property
    def failed(self) -> int:
        """Number of lines that differ."""
        return len({each.line for each in self.differences})


def read_utterances(text: str, *, name: str = "utterances.jsonl") -> list[Utterance]:
    """Parse the lines of a file; empty lines and those that start with `//` are skipped.

    Raises:
        ConfigError: a line is invalid; the message says which, and why.
    """
    found: list[Utterance] = []
    answers: dict[str, JsonValue] = {}
    for written in ConfigText.of_lines(text, name=name, depth=_DEPTH):
        if "message" not in written.value and "answers" in written.value:
            answers = written.validate(_Answers, advice=_ADVICE).answers
            continue
        utterance = written.validate(Utterance, advice=_ADVICE)
        for each in filter(None, (utterance.expect, utterance.expect_rules)):
            _check_known(each.action, get_args(RouteAction), "action", f"{name}:{written.line}")
            _check_known(each.how, get_args(RouteHow), "how", f"{name}:{written.line}")
        found.append(utterance.model_copy(update={"line": written.line, "answers": answers}))
    return found


async def check_utterances(
    loaded: LoadedFlows,
    utterances: Iterable[Utterance],
    *,
    mode: Literal["scripted", "rules"] = "scripted",
    llm: LLMProvider | None = None,
    tools: Sequence[Tool] = (),
) -> RegressionReport:
    """Process messages as a conversation would, and compare the results.

    Nothing is sent: each request gets an empty answer, and each `llm` step its first choice, an empty object
    or a fixed text.

    Args:
        loaded: the flows.
        utterances: the lines.
        mode: whether lines may have a model's decision, or only rules decide.
        llm: a model to use instead of the scripted one.
        tools: tools for steps and skills in addition to the file's own.
    """
    script = _ScriptedModel()
    model = (llm or script.provider) if mode == "scripted" else None
    # The file's own model must not be called, nor built: its key may not exist here.
    without = replace(loaded, file=loaded.file.model_copy(update={"model": None}))
    differences: list[Difference] = []
    left_out: list[int] = []
    checked = 0
    async with _dry_orchestrator(without, model, tools) as (orchestrator, caller):
        sessions: dict[str, str] = {}
        broken: set[str] = set()
        for each in utterances:
            expected = each.expect_rules if mode == "rules" and each.decision is not None else each.expect
            if expected is None or each.session in broken:
                left_out.append(each.line)
                broken |= {each.session} - {""}
                continue
            script.decision = each.decision
            caller.answers = each.answers
            checked += 1
            clock = nullcontext() if each.now is None else situation(each.now, "en")
            try:
                with clock:
                    reply = await orchestrator.query(
                        each.message, session_id=sessions.get(each.session, ""), context=each.context
                    )
            except LoomError as error:
                differences.append(Difference(each.line, each.message, "error", "", str(error)))
                continue
            if each.session:
                sessions[each.session] = reply.session_id
            inputs = await _inputs(orchestrator, caller, reply)
            differences += _differences(each, expected, reply, inputs)
    return RegressionReport(checked, tuple(left_out), tuple(differences))


class _ScriptedModel:
    """A scripted model: it answers as the line says, and fails if the line says nothing."""

    def __init__(self) -> None:
        self.decision: Mapping[str, Any] | None = None
        self.provider = MockProvider(self._answer)

    def _answer(self, request: ChatRequest) -> str:
        if self.decision is None:
            raise LLMError("The line has no decision.", failure="unavailable")
        return json.dumps(self.decision, ensure_ascii=False) if request.output is not None else _ANSWER


def _answer_step(request: ChatRequest) -> str:
    """Answer an `llm` step without a model."""
    if request.output is None:
        return _ANSWER
    choice: Mapping[str, Any] = request.output.schema.get("properties", {}).get(CHOICE, {})
    return json.dumps({CHOICE: choice["enum"][0]} if "enum" in choice else {}, ensure_ascii=False)


class RecordingCaller(EndpointCaller):
    """A stub that answers requests itself, and records them.

    Attributes:
        inputs: the inputs of the flow at the latest request of a run, by its id.
        answers: bodies of responses, by method and address; an empty object for the others.
    """

    def __init__(self, file: FlowFile) -> None:
        super().__init__(file)
        self.inputs: dict[str, Mapping[str, Any]] = {}
        self.answers: Mapping[str, Any] = {}

    async def call(
        self,
        endpoint: EndpointConfig,
        values: ExpressionValues,
        *,
        run_id: str = "",
        step_id: str = "",
        seconds: float | None = None,
    ) -> EndpointResult:
        """Record a request without sending it; see `EndpointCaller.call`."""
        self.inputs[run_id] = dict(values.inputs)
        body = self.answers.get(f"{endpoint.method} {endpoint.url}", {})
        return EndpointResult(200, {}, body, 1, 0.0, "", "")


@asynccontextmanager
async def _dry_orchestrator(
    loaded: LoadedFlows, llm: LLMProvider | None, tools: Sequence[Tool]
) -> AsyncGenerator[tuple[WorkflowOrchestrator, RecordingCaller]]:
    caller, journal = RecordingCaller(loaded.file), Journal()
    try:
        orchestrator = WorkflowOrchestrator(
            loaded, journal=journal, llm=llm, caller=caller, tools=tools, look_seconds=None
        )
        executor = orchestrator.executor
        executor.parts = replace(executor.parts, llm=MockProvider(_answer_step))
        async with caller, orchestrator:
            yield orchestrator, caller
    finally:
        await journal.aclose()


async def _inputs(
    orchestrator: WorkflowOrchestrator, caller: RecordingCaller, reply: FlowReply
) -> Mapping[str, Any]:
    """Return the inputs of a flow so far."""
    if not reply.run_id:
        return {}
    run = await orchestrator.journal.get(reply.run_id)
    if run.pending:
        return run.pending[0].arguments
    given = caller.inputs.get(run.id, run.request.metadata.get("inputs"))
    return cast("Mapping[str, Any]", given or {})


def _differences(
    utterance: Utterance, expected: Expectation, reply: FlowReply, inputs: Mapping[str, Any]
) -> list[Difference]:
    route = reply.route
    wanted: dict[str, tuple[Any, Any]] = {
        "action": (expected.action or route.action, route.action),
        "how": (expected.how or route.how, route.how),
        "status": (expected.status or reply.status, reply.status),
    }
    if expected.flow is not None:
        wanted["flow"] = (expected.flow, reply.flow_id)
    if expected.candidates is not None:
        wanted["candidates"] = (sorted(expected.candidates), sorted(route.candidates))
    for name, value in expected.inputs.items():
        wanted[f"inputs.{name}"] = (value, inputs.get(name))
    return [
        Difference(utterance.line, utterance.message, what, want, found)
        for what, (want, found) in wanted.items()
        if want != found
    ]


def _check_known(word: str, words: Sequence[str], what: str, where: str) -> None:
    if word and word not in words:
        raise ConfigError(f"{where}: there is no {what} {word!r}.", advice=f"There are: {', '.join(words)}.")
