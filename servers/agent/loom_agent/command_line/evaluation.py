r"""`loom-agent-server eval`: run cases, and compare what the agent did with what is expected.

    {"goal": "Who approved the budget?", "expect": {"contains": "Anna Berg", "tools": ["search_documents"]}}
    {"goal": "2 加 3 等于几？", "expect": {"matches": "\\b5\\b", "max_tokens": 2000}}

Each case runs once or several times, in a journal of its own.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal, Self, cast

import anyio
from pydantic import BeforeValidator, Field, JsonValue, model_validator

from loom_agent import PROGRAM
from loom_agent.command_line.start import start_run
from loom_agent.service import AgentService
from loom_core.cjk import is_chinese
from loom_core.errors import InvalidInputError, LoomError, NotFoundError
from loom_core.llm.json_schema.values import check_schema, find_problems
from loom_core.runs.commands import ApprovalDecision, InputResponse
from loom_core.runs.run import Pending
from loom_core.server.cli.command_line import report_wrong_usage
from loom_core.server.cli.console import ProgressBar, out, out_json, say
from loom_core.server.cli.evaluation import CaseModel, JUnitCase, TextList, count, read_cases, write_junit
from loom_core.server.cli.terminal import Interrupted, Interrupts
from loom_core.tools.patterns import matcher, text_search

if TYPE_CHECKING:
    import argparse

    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.settings import Settings
    from loom_core.runs.run import Run

__all__ = ["EvaluationCase", "run_evaluation"]

_BY = "the evaluation"
_DENIED = "No one can approve this call in an evaluation."
_DENIED_ZH = "评测中没有人可以批准这次调用。"
_INTERRUPTED = 130
_SHOWN = 200
_FORMATS = {"tokens": ("{} tokens", ",.0f"), "seconds": ("{} s", ".2f"), "cost": ("${}", ".4f")}
_ADVICE = "See docs/howto/evaluation.md for the format."


def _as_order(value: object) -> object:
    return {"in_order": cast("object", value)} if isinstance(value, list | str) else value


class ToolExpectation(CaseModel):
    """The expected tool calls of the model, by names of tools with `*` and `?`."""

    in_order: TextList = ()
    exactly: TextList | None = None
    never: TextList = ()

    def failures(self, called: Sequence[str]) -> list[str]:
        """Compare with the tools that the model called, in order; return what differs."""
        failures: list[str] = []
        left = iter(called)
        if not all(any(map(matcher(each), left)) for each in self.in_order):
            failures.append(f"the calls are not in the order {_listed(self.in_order)}")
        if self.exactly is not None and not _fit(self.exactly, called):
            failures.append(f"the calls are not exactly {_listed(self.exactly)}")
        forbidden = [tool for tool in called if any(matcher(each)(tool) for each in self.never)]
        if forbidden:
            failures.append(f"it called {_listed(list(dict.fromkeys(forbidden)))}, which it must not")
        return failures


class Expectation(CaseModel):
    """Expectation of a run; a key that is left out allows anything."""

    status: Literal["completed", "failed", "aborted"] = "completed"
    output: JsonValue = None
    contains: TextList = ()
    matches: TextList = ()
    answer_schema: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    tools: Annotated[ToolExpectation, BeforeValidator(_as_order)] = ToolExpectation()
    max_tokens: int | None = Field(default=None, ge=0)
    max_cost: float | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_forms(self) -> Self:
        try:
            for each in self.matches:
                text_search(each)
            for each in (*self.tools.in_order, *(self.tools.exactly or ()), *self.tools.never):
                matcher(each)
            check_schema(self.answer_schema or {})
        except LoomError as error:
            raise ValueError(error.message) from None
        return self


class EvaluationCase(CaseModel):
    """A line of the file: a goal, and what is expected of its runs."""

    goal: str = Field(min_length=1)
    expect: Expectation = Expectation()
    id: str = ""
    profile: str = ""
    output_schema: dict[str, JsonValue] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The result of one run of a case, as in JSON.

    Attributes:
        failures: what differs from the expectation, a line each; empty if it passed.
        run_id: id of the run; empty if it could not start.
        tools: the tools that the model called, in order.
        tokens: input and output tokens; None if it could not start, as the next one.
        seconds: working time.
        cost: US dollars; None if unknown.
    """

    failures: Sequence[str]
    run_id: str = ""
    status: str = ""
    output: str = ""
    tools: Sequence[str] = ()
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CaseResult:
    """The runs of a case."""

    line: int
    case: EvaluationCase
    outcomes: Sequence[_Outcome]

    @property
    def failed(self) -> list[_Outcome]:
        """The runs that did not pass."""
        return [each for each in self.outcomes if each.failures]

    @property
    def title(self) -> str:
        """The goal, with its id or line."""
        return f"{self.case.id or f'line {self.line}'}: {' '.join(self.case.goal.split())}"

    @property
    def spreads(self) -> dict[str, tuple[float, float] | None]:
        """Mean and standard deviation over the runs, of each measure; None if one is unknown."""
        spreads: dict[str, tuple[float, float] | None] = {}
        for name in _FORMATS:
            values: list[float | None] = [getattr(each, name) for each in self.outcomes]
            known = [each for each in values if each is not None]
            deviation = stdev(known) if len(known) > 1 else 0.0
            spreads[name] = (fmean(known), deviation) if len(known) == len(values) else None
        return spreads

    @property
    def reasons(self) -> list[str]:
        """The differences from the expectation, and the calls and the answer of each failed run."""
        reasons: list[str] = []
        for each in self.failed:
            reasons += [f"{each.run_id or 'not started'}: {failure}" for failure in each.failures]
            if each.run_id:
                called = ", ".join(each.tools) or "no tool"
                reasons.append(f"{each.run_id}: it called {called} and answered: {_short(each.output)}")
        return reasons

    def data(self) -> dict[str, object]:
        """Return the result for programs."""
        return {
            "line": self.line,
            **self.case.model_dump(include={"id", "goal", "profile"}),
            "passed": len(self.outcomes) - len(self.failed),
            **{
                name: each and dict(zip(("mean", "sd"), each, strict=True))
                for name, each in self.spreads.items()
            },
            "runs": [asdict(each) for each in self.outcomes],
        }


def run_evaluation(args: argparse.Namespace, settings: Settings) -> int:
    """Run a file of cases, and print the report. Blocks.

    Args:
        args: arguments of the command.
        settings: settings of the process.

    Returns:
        The exit code: 1 if too few runs pass, 2 if a line of the file is invalid.

    Raises:
        LoomError: no run could start, or the JUnit report cannot be written.
    """
    try:
        cases = read_cases(args.file, EvaluationCase, advice=_ADVICE)
    except LoomError as error:
        return report_wrong_usage(PROGRAM, error)
    with TemporaryDirectory(prefix="loom-eval-") as folder:
        journal = settings.journal_file or Path(folder) / "runs.db"
        results = anyio.run(_run_cases, cases, args, replace(settings, journal_file=journal))
    return results if isinstance(results, int) else _report(results, args)


async def _run_cases(
    cases: Mapping[int, EvaluationCase], args: argparse.Namespace, settings: Settings
) -> list[_CaseResult] | int:
    """Run all cases; return the results, or the exit code if there are none."""
    service = AgentService(settings, adopts=False, sees_all=True)
    try:
        _check_profiles(cases, service.load(), args)
    except NotFoundError as error:
        return report_wrong_usage(PROGRAM, error)
    async with service, Interrupts.listen() as interrupts:
        try:
            return await interrupts.unless(_Evaluation(service, args, cases).run)
        except Interrupted:
            return _INTERRUPTED


def _check_profiles(cases: Mapping[int, EvaluationCase], file: AgentFile, args: argparse.Namespace) -> None:
    file.profile(args.profile)
    for line, case in cases.items():
        try:
            file.profile(case.profile)
        except NotFoundError as error:
            raise NotFoundError(f"{args.file}:{line}: {error.message}", advice=error.advice) from None


class _Evaluation:
    """Runs the cases of a file, several at the same time."""

    def __init__(
        self, service: AgentService, args: argparse.Namespace, cases: Mapping[int, EvaluationCase]
    ) -> None:
        self._service = service
        self._args = args
        self._cases = cases
        self._slots = anyio.CapacityLimiter(args.parallel)
        self._bar = ProgressBar("running", "runs")
        self._total, self._done = len(cases) * args.runs, 0
        self._errors: list[LoomError] = []

    async def run(self) -> list[_CaseResult]:
        """Run every case as often as requested.

        Raises:
            LoomError: no run could start.
        """
        outcomes: dict[int, list[_Outcome]] = {line: [] for line in self._cases}
        async with anyio.create_task_group() as tasks:
            for _ in range(self._args.runs):
                for line, case in self._cases.items():
                    tasks.start_soon(self._run_case, case, outcomes[line])
        if len(self._errors) == self._total:  # it is not about one case
            raise self._errors[0]
        return [
            _CaseResult(line=line, case=case, outcomes=outcomes[line]) for line, case in self._cases.items()
        ]

    async def _run_case(self, case: EvaluationCase, outcomes: list[_Outcome]) -> None:
        async with self._slots:
            try:
                outcomes.append(await self._judge(case))
            except LoomError as error:
                self._errors.append(error)
                outcomes.append(_Outcome(failures=[str(error)]))
        self._done += 1
        self._bar.show(self._done, self._total, final=self._done == self._total)

    async def _judge(self, case: EvaluationCase) -> _Outcome:
        service, tools = self._service, list[str]()
        run = await start_run(
            service, self._args, case.goal, profile=case.profile, output_schema=case.output_schema
        )
        async with aclosing(service.journal().follow(run.id)) as events:
            async for event in events:
                if event.type == "tool_calls_start":
                    tools += [str(call["tool"]) for call in event.payload["calls"]]
                elif event.type == "approval_required":
                    await self._respond(run, Pending(**event.payload["pending"]))
        run = await service.run(run.id)
        usage = run.spent.usage
        outcome = _Outcome(
            failures=_answer_failures(case.expect, run) + case.expect.tools.failures(tools),
            run_id=run.id,
            status=run.status,
            output=run.output,
            tools=tools,
            tokens=usage.input_tokens + usage.output_tokens,
            seconds=round(run.spent.seconds, 3),
            cost=usage.cost,
        )
        return replace(outcome, failures=[*outcome.failures, *_limit_failures(case.expect, outcome)])

    async def _respond(self, run: Run, pending: Pending) -> None:
        """Respond in place of a person: approve what `--approve` names, and deny everything else."""
        if pending.kind == "question":
            response = InputResponse(id=pending.id, action="decline", by=_BY)
        elif any(matcher(each)(pending.tool) for each in self._args.approve):
            # An approval must not outlast the evaluation.
            response = ApprovalDecision(id=pending.id, action="approve", by=_BY, keep=False)
        else:
            reason = _DENIED_ZH if is_chinese(run.request.goal) else _DENIED
            response = ApprovalDecision(id=pending.id, action="deny", reason=reason, by=_BY)
        with suppress(InvalidInputError):  # it is not pending any more
            await self._service.send_commands(run.id, response)


def _answer_failures(expect: Expectation, run: Run) -> list[str]:
    """Compare the status and the answer of a run with what is expected."""
    if run.status != expect.status:
        return [f"it is {run.status}, not {expect.status}. {run.problem}".rstrip()]
    data, text = run.structured, run.output
    if data is None:
        try:
            data = json.loads(text)
        except ValueError:
            data = text.strip()
    failures = [f"the answer lacks {each!r}" for each in expect.contains if each not in text]
    failures += [
        f"the answer does not match {each!r}" for each in expect.matches if not text_search(each)(text)
    ]
    wanted = expect.output
    if wanted is not None and wanted not in (data, text.strip()):
        failures.append(f"the answer is not {json.dumps(wanted, ensure_ascii=False)}")
    if expect.answer_schema is not None:
        failures += [f"the answer does not fit: {each}" for each in find_problems(data, expect.answer_schema)]
    return failures


def _limit_failures(expect: Expectation, outcome: _Outcome) -> list[str]:
    """Compare tokens, seconds and cost with their limits."""
    failures: list[str] = []
    for name in _FORMATS:
        most, value = getattr(expect, f"max_{name}"), getattr(outcome, name)
        if most is not None and value is None:
            failures.append(f"its {name} is unknown, and the limit is {_format(name, most)}")
        elif most is not None and value > most:
            failures.append(f"it took {_format(name, value)}, more than {_format(name, most)}")
    return failures


def _report(results: Sequence[_CaseResult], args: argparse.Namespace) -> int:
    """Print the report, and write that for continuous integration; return the exit code."""
    total = sum(len(each.outcomes) for each in results)
    failed = [outcome for each in results for outcome in each.failed]
    passed = total - len(failed)
    if args.json:
        cases = [each.data() for each in results]
        out_json({"runs": total, "passed": passed, "pass_rate": passed / total, "cases": cases})
    else:
        for each in results:
            out("\n    ".join([_case_line(each), *each.reasons]))
        out(f"{passed} of {count(total, 'run')} passed.")
    kept = next((each.run_id for each in failed if each.run_id), "")
    if kept and args.journal:
        journal = shlex.quote(str(args.journal))
        say(f"To see a run: {PROGRAM} runs show {kept} --journal {journal} --html run.html")
    elif kept:
        say("To see what happened in a run, keep the runs: --journal FILE")
    if args.junit:
        write_junit(args.junit, f"{PROGRAM} eval", [_junit_case(each) for each in results])
    return 1 if passed / total < args.at_least else 0


def _case_line(result: _CaseResult) -> str:
    total, failed = len(result.outcomes), len(result.failed)
    known = {name: each for name, each in result.spreads.items() if each is not None}
    measures = ", ".join(_format(name, *each[: min(total, 2)]) for name, each in known.items())
    return f"{'✗' if failed else '✓'} {total - failed}/{total}  {_short(result.title)}  ({measures})"


def _junit_case(result: _CaseResult) -> JUnitCase:
    total, failed = len(result.outcomes), len(result.failed)
    text = "\n".join([f"{failed} of {count(total, 'run')} failed", *result.reasons]) if failed else ""
    started = any(each.run_id for each in result.outcomes)
    return JUnitCase(
        name=result.title,
        seconds=sum(each.seconds or 0.0 for each in result.outcomes),
        failure=text if started else "",
        error="" if started else text,
        output=_case_line(result),
    )


def _fit(patterns: Sequence[str], names: Sequence[str]) -> bool:
    return len(patterns) == len(names) and all(
        matcher(pattern)(name) for pattern, name in zip(patterns, names, strict=True)
    )


def _format(measure: str, value: float, deviation: float | None = None) -> str:
    """Format a measure with its unit; of several runs, the mean with its standard deviation."""
    unit, places = _FORMATS[measure]
    text = format(value, places) + ("" if deviation is None else f" ± {deviation:{places}}")
    return unit.format(text)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
