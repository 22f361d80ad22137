"""Results of the tools, as data and as text for a model, in the language of the goal: English or Chinese."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from loom_agent.models import RunInfo, RunLine, UsageInfo
from loom_core.cjk import is_chinese
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.server.protocol.results import TOKEN_CAP, TextBudget
from loom_core.server.runs.models import pending_info

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_agent.models import EventsResult, RunsResult, SearchResult
    from loom_core.runs.run import Pending, Run

__all__ = [
    "Wording",
    "events_text",
    "goal_line",
    "question_of",
    "run_info",
    "run_line",
    "run_summary",
    "run_text",
    "runs_text",
    "search_text",
    "short_line",
]

_ARGUMENTS = 2000  # characters of a call's arguments that are shown
_GOAL = 120
_PAYLOAD = 400


def run_info(run: Run, *, by_tool: bool, by_asking: bool, answered_by: str) -> RunInfo:
    """Convert a run to data, with the next step.

    Args:
        run: the run.
        by_tool: whether the caller may decide by `agent_decide`.
        by_asking: whether the caller's client can ask its user (elicitation), who may decide.
        answered_by: see `AgentService.answered_by`.
    """
    usage = run.spent.usage
    return RunInfo(
        run_id=run.id,
        session_id=run.request.session_id,
        profile=run.request.profile,
        goal=run.request.goal,
        status=run.status,
        output=run.output,
        answered_by=answered_by,
        structured=cast("dict[str, Any] | None", run.structured),
        problem=run.problem,
        pending=[pending_info(each) for each in run.pending],
        usage=UsageInfo(
            iterations=run.spent.iterations,
            tool_calls=run.spent.tool_calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            seconds=round(run.spent.seconds, 3),
        ),
        cost=usage.cost,
        last_seq=run.last_seq,
        next=_next(run, by_tool=by_tool, by_asking=by_asking),
    )


def _next(run: Run, *, by_tool: bool, by_asking: bool) -> str:
    wording = Wording.for_goal(run.request.goal)
    match run.status:
        case "completed":
            text = wording.completed
        case "working":
            text = wording.working
        case "input_required":
            text = wording.ask if by_asking else wording.decide if by_tool else wording.elsewhere
        case "paused":
            text = wording.paused
        case "failed" | "aborted":
            text = wording.ended
    return text.format(run_id=run.id, session_id=run.request.session_id)


def run_text(run: Run, info: RunInfo, *, details: str = "") -> str:
    """Format a run as text, with details before its output."""
    wording = Wording.for_goal(run.request.goal)
    status = dict(wording.statuses)[run.status]
    lines = [wording.head.format(run_id=run.id, session_id=run.request.session_id, status=status)]
    if info.answered_by:
        lines.append(wording.answered.format(member=info.answered_by))
    if run.problem:
        lines.append(wording.problem.format(problem=run.problem))
    if run.pending:
        lines += [wording.waits, *(pending_line(each, wording) for each in run.pending)]
    blocks = ["\n".join(lines), *filter(None, [details])]
    if run.output:
        blocks.append(run.output)
    blocks.append(f"{run_summary(run)}\n{wording.next.format(text=info.next)}")
    return "\n\n".join(blocks)


def run_summary(run: Run) -> str:
    """Format the usage of a run, in a line."""
    wording = Wording.for_goal(run.request.goal)
    usage = run.spent.usage
    return wording.spent.format(
        turns=run.spent.iterations,
        calls=run.spent.tool_calls,
        tokens=f"{usage.input_tokens + usage.output_tokens:,}",
        cost="" if usage.cost is None else f", ${usage.cost:.4f}",
    )


def pending_line(pending: Pending, wording: Wording) -> str:
    """Format a pending request, in a line."""
    template = {"approval": wording.call, "unknown": wording.unknown, "question": wording.question}
    line = template[pending.kind].format(
        id=pending.id,
        tool=pending.tool,
        arguments=_json(pending.arguments),
        reason=escape_controls(pending.reason),
        schema=_json(pending.schema),
    )
    if pending.deadline is None:
        return line
    time = datetime.fromtimestamp(pending.deadline).astimezone().strftime("%H:%M:%S")
    return line + wording.until.format(time=time)


def question_of(pending: Pending, wording: Wording) -> str:
    """Phrase the question to a person about a pending request, for an elicitation form."""
    if pending.kind == "question":
        return escape_controls(pending.reason)
    template = wording.may_run if pending.kind == "approval" else wording.may_run_again
    return template.format(
        tool=escape_controls(pending.tool),
        arguments=_json(pending.arguments),
        reason=escape_controls(pending.reason),
    )


def goal_line(run: Run) -> str:
    """Return the beginning of a run's goal, in a line."""
    return short_line(run.request.goal, _GOAL)


def run_line(run: Run) -> RunLine:
    """Convert a run to a list entry."""
    return RunLine(
        run_id=run.id,
        session_id=run.request.session_id,
        profile=run.request.profile,
        goal=goal_line(run),
        status=run.status,
        created=run.created,
        updated=run.updated,
        pending=len(run.pending),
    )


def runs_text(result: RunsResult, *, remarks: Mapping[str, str] | None = None) -> str:
    """Format the result of `agent_runs`; with remarks about runs, by their ids."""
    if not result.runs:
        return "There is no such run. agent_run starts one."
    budget = TextBudget(narrow="status, session_id, query or limit", separator="\n")
    for run in result.runs:
        waits = f", waits for {run.pending}" if run.pending else ""
        remark = (remarks or {}).get(run.run_id, "")
        budget.add(
            f"- {run.run_id} ({run.status}{waits}; session {run.session_id}{remark and f'; {remark}'}):"
            f" {escape_controls(run.goal)}"
        )
    return budget.text()


def events_text(result: EventsResult, *, tokens: int = TOKEN_CAP // 2) -> tuple[str, int]:
    """Format the result of `agent_events`; return it with the number of events in it."""
    if not result.events:
        return f"Nothing has happened since. The run is {result.status}.", 0
    budget = TextBudget(tokens, narrow="after_seq and limit", separator="\n")
    for event in result.events:
        budget.add(f"{event.seq} {event.type} {escape_controls(short_line(_json(event.payload), _PAYLOAD))}")
    more = f"\n[more: go on with after_seq={result.last_seq}]" if result.more else ""
    return f"{budget.text()}{more}", budget.shown


def search_text(result: SearchResult) -> str:
    """Format the result of `tool_search`."""
    budget = TextBudget(narrow="a query that says more", separator="\n")
    for tool in result.tools:
        arguments = ", ".join(tool.arguments.get("properties", {})) or "none"
        budget.add(
            f"- {escape_controls(tool.name)} ({tool.permission}):"
            f" {escape_controls(short_line(tool.description, _PAYLOAD))}"
            f" Arguments: {escape_controls(arguments)}"
        )
    found = budget.text() if result.tools else f"None of the {result.total} tools fits. Try other words."
    return "\n".join([found, *(f"(Note: {escape_controls(note)})" for note in result.notes)])


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return escape_controls(text if len(text) <= _ARGUMENTS else f"{text[:_ARGUMENTS]} …")


def short_line(text: str, most: int) -> str:
    """Return a text in one line, cut after so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most].rstrip()} …"


@dataclass(frozen=True, slots=True)
class Wording:
    """Texts in one language; the caller fills in `{…}`.

    Attributes:
        head: first line of a result.
        statuses: names of the statuses.
        answered: which member of a composition answered.
        problem: why the run is not completed.
        waits: heading of the pending requests.
        call: a call that needs approval.
        unknown: a call that was running when the program ended.
        question: a question of a tool.
        until: the deadline.
        spent: the usage.
        next: prefix of the next step.
        completed: next step for a completed run; likewise below.
        working: the run is working.
        decide: the user decides through `agent_decide`.
        ask: the next call asks the user.
        elsewhere: another person decides.
        paused: the run is paused.
        ended: the run failed or was aborted.
        starts: progress: a turn starts; likewise below.
        uses: a tool call starts.
        done: a tool call succeeded.
        failed: a tool call failed.
        asks: people are asked.
        decided: people have decided.
        retried: the request to the model is retried.
        call_retried: a tool call is retried.
        compacted: the conversation was compacted.
        finished: the run is completed.
        may_run: question whether a call may run.
        may_run_again: question whether to repeat a call with unknown outcome.
        steps: heading of the steps.
        answer: the kind of a step that is an answer of the model.
        given: mark of a step whose outcome was given to a fork.
        fork: of which run it is a fork.
    """

    head: str = "Run {run_id} (session {session_id}): {status}"
    statuses: tuple[tuple[str, str], ...] = (
        ("working", "working"),
        ("input_required", "waits for a decision"),
        ("paused", "paused"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("aborted", "aborted"),
    )
    answered: str = "Answered by: {member}"
    problem: str = "Problem: {problem}"
    waits: str = "It waits for:"
    call: str = "- id {id}: may `{tool}` be called with {arguments}? {reason}"
    unknown: str = "- id {id}: shall `{tool}` be called again with {arguments}? {reason}"
    question: str = "- id {id}: `{tool}` asks: {reason} The answer has to fit {schema}"
    until: str = " (until {time}, then it counts as refused)"
    spent: str = "Turns: {turns}, calls: {calls}, tokens: {tokens}{cost}"
    next: str = "Next: {text}"
    completed: str = (
        "Give the user the output. To continue this conversation, call agent_reply with session_id "
        "{session_id}."
    )
    working: str = "It continues by itself. Call agent_wait with run_id {run_id} for its outcome."
    decide: str = (
        "Show the user what it waits for, and ask them. Then call agent_decide with run_id {run_id} and "
        "their decisions; do not decide yourself."
    )
    ask: str = "Call agent_wait with run_id {run_id} and wait_seconds 45: the user is asked then."
    elsewhere: str = (
        "Tell the user that the run waits for a decision which cannot be made here, but by the operator of "
        "the server: loom-agent-server runs decide {run_id} ID approve. Call agent_wait later."
    )
    paused: str = "It is paused. Call agent_control with run_id {run_id} and action resume to go on."
    ended: str = (
        "Tell the user the problem. When it is solved, call agent_control with run_id {run_id} and action "
        "resume to go on where it stopped; nothing that was done is done again."
    )
    starts: str = "{model} is thinking (turn {turn})"
    uses: str = "{tool} …"
    done: str = "{tool}: done in {seconds:.1f} s"
    failed: str = "{tool}: {status}"
    asks: str = "waits for a decision: {tool}"
    decided: str = "decided: {action}"
    retried: str = "asks the model again: {problem}"
    call_retried: str = "{tool}: attempt {attempt} of {attempts} follows in {wait:.1f} s: {problem}"
    compacted: str = "made the conversation shorter: {before} → {after} tokens"
    finished: str = "done"
    may_run: str = "The agent wants to call {tool} with {arguments}. {reason} Allow it?"
    may_run_again: str = "The agent had begun to call {tool} with {arguments}. {reason} Call it again?"
    steps: str = "Steps:"
    answer: str = "answer"
    given: str = " (given)"
    fork: str = "fork of {run_id} at step {step}"

    @classmethod
    def for_goal(cls, goal: str) -> Wording:
        """Return the texts in the language of a goal."""
        return _CHINESE if is_chinese(goal) else _ENGLISH


_ENGLISH = Wording()


_CHINESE = Wording(
    head="运行 {run_id}（会话 {session_id}）：{status}",
    statuses=(
        ("working", "进行中"),
        ("input_required", "等待决定"),
        ("paused", "已暂停"),
        ("completed", "已完成"),
        ("failed", "失败"),
        ("aborted", "已中止"),
    ),
    answered="回答者：{member}",
    problem="问题：{problem}",
    waits="正在等待：",
    call="- id {id}：是否允许以 {arguments} 调用 `{tool}`？{reason}",
    unknown="- id {id}：是否以 {arguments} 再次调用 `{tool}`？{reason}",
    question="- id {id}：`{tool}` 询问：{reason} 回答须符合 {schema}",
    until="（{time} 之前有效，之后视为拒绝）",
    spent="轮次：{turns}，调用：{calls}，词元：{tokens}{cost}",
    next="下一步：{text}",
    completed="把输出告诉用户。要继续这个对话，请用 session_id {session_id} 调用 agent_reply。",
    working="运行会自行继续。请用 run_id {run_id} 调用 agent_wait 获取结果。",
    decide=(
        "把等待的事项展示给用户并询问他们，"
        "然后用 run_id {run_id} 和他们的决定调用 agent_decide；不要自行决定。"
    ),
    ask="请用 run_id {run_id} 和 wait_seconds 45 调用 agent_wait：届时会询问用户。",
    elsewhere=(
        "告诉用户：该运行在等待一个无法在此作出的决定，须由服务器的管理者执行 "
        "loom-agent-server runs decide {run_id} ID approve。稍后再调用 agent_wait。"
    ),
    paused="已暂停。要继续，请用 run_id {run_id} 和 action resume 调用 agent_control。",
    ended=(
        "把问题告诉用户。解决之后，用 run_id {run_id} 和 action resume 调用 agent_control，"
        "从中断处继续；已完成的不会重做。"
    ),
    starts="{model} 正在思考（第 {turn} 轮）",
    uses="正在使用 {tool} …",
    done="{tool}：完成，用时 {seconds:.1f} 秒",
    failed="{tool}：{status}",
    asks="等待决定：{tool}",
    decided="决定：{action}",
    retried="重新询问模型：{problem}",
    call_retried="{tool}：{wait:.1f} 秒后进行第 {attempt} 次尝试（最多 {attempts} 次）：{problem}",
    compacted="已压缩对话：{before} → {after} 词元",
    finished="完成",
    may_run="智能体要以 {arguments} 调用 {tool}。{reason} 是否允许？",
    may_run_again="智能体曾开始以 {arguments} 调用 {tool}。{reason} 是否再次调用？",
    steps="步骤：",
    answer="回答",
    given="（给定）",
    fork="{run_id} 的分叉，自第 {step} 步起",
)
