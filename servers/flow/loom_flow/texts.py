"""Results of the tools: as text for a model, in English or Chinese, and as data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from loom_core.flow.config.localization import localize
from loom_core.flow.responses.phrases import Phrases, language_of_run
from loom_core.flow.responses.reply import CHOICE
from loom_core.flow.turns.replies import question_text
from loom_core.flow.turns.replies import run_text as told_of_run
from loom_core.flow.understanding.language import BilingualTexts, Language, Text
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.server.protocol.results import TOKEN_CAP, TextBudget
from loom_core.server.runs.models import pending_info
from loom_flow.models import (
    ChatResult,
    CitationInfo,
    HandoverInfo,
    RouteInfo,
    RunInfo,
    RunLine,
    SpokenMessageInfo,
    StepInfo,
    WaitingInfo,
)

if TYPE_CHECKING:
    from loom_core.flow.config import FlowFile
    from loom_core.flow.operators import Handover, SpokenMessage
    from loom_core.flow.responses.reply import FlowReply, RoutingOutcome
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Pending, Run
    from loom_core.server.runs.models import EventInfo
    from loom_flow.models import ExplainResult, FlowsResult, OperatorResult, RunsResult

__all__ = [
    "ToolTexts",
    "chat_result",
    "chat_text",
    "events_text",
    "explain_text",
    "flows_text",
    "go_on_line",
    "message_of",
    "pending_line",
    "progress_line",
    "question_of",
    "route_info",
    "run_info",
    "run_line",
    "run_text",
    "runs_text",
    "steps_of",
]


_NAMES = {  # of statuses
    "working": Text("working", "进行中"),
    "input_required": Text("waits for the user", "等待用户"),
    "outside": Text("waits, not for the user", "等待中，不是等待用户"),
    "paused": Text("paused", "已暂停"),
    "completed": Text("completed", "已完成"),
    "failed": Text("failed", "失败"),
    "aborted": Text("aborted", "已中止"),
}
_CHINESE_NAMES = {  # of statuses of steps, actions, and how a message was routed; English needs none
    "running": "进行中",
    "success": "完成",
    "failure": "失败",
    "unknown": "不知是否完成",
    "declined": "未获同意",
    "flow": "办理流程",
    "skill": "使用技能",
    "tool": "调用工具",
    "respond": "回答",
    "clarify": "询问",
    "answer": "作为回答",
    "correct": "更正",
    "approve": "同意",
    "deny": "不同意",
    "cancel": "取消",
    "retry": "再试",
    "greet": "寒暄",
    "pass_on": "转告人工",
    "rules": "规则",
    "model": "模型",
    "pending": "正在等待的问题",
    "choice": "刚才的选择",
    "manners": "礼貌用语",
    "given": "指定",
    "none": "无",
}


class ToolTexts(BilingualTexts):
    """Texts for models in one language; callers fill in `{…}`."""

    head = Text(
        "Run {run_id} of {flow} (session {session_id}): {status}",
        "流程 {flow} 的运行 {run_id}（会话 {session_id}）：{status}",
    )

    # How a message was routed, in which session and run
    session = Text("session {id}", "会话 {id}")
    run = Text("run {id}", "运行 {id}")
    by = Text("{action} ({how})", "{action}（{how}）")

    # The state of a run, its pending questions, and their deadlines
    problem = Text("Problem: {problem}", "问题：{problem}")
    waits = Text("It waits for:", "正在等待：")
    approval = Text("- id {id}, yes or no: {reason}{arguments}", "- id {id}，是或否：{reason}{arguments}")
    unknown = Text(
        "- id {id}, again or not: {reason}{arguments}", "- id {id}，是否再做一次：{reason}{arguments}"
    )
    question = Text(
        "- id {id}: {reason} The answer has to fit {schema}", "- id {id}：{reason} 回答须符合 {schema}"
    )
    event = Text(
        "- id {id}, an event or a time, not the user: {reason}",
        "- id {id}，等待事件或时间，与用户无关：{reason}",
    )
    operator = Text(
        "- id {id}, an operator, not the user: {reason}", "- id {id}，由人工处理，与用户无关：{reason}"
    )
    until = Text(" (until {time}, then it counts as refused)", "（{time} 之前有效，之后视为拒绝）")
    at = Text(" (until {time})", "（至 {time}）")
    did = Text("It has done:", "已经做了：")
    next = Text("Next: {text}", "下一步：{text}")
    go_on = Text("Go on with: {command}", "继续：{command}")

    # What the client does next, by status; `told`: the message was answered without a run
    completed = Text(
        "Give the user the text. What they say next goes to flow_chat with session_id {session_id}.",
        "把文本告诉用户。用户接下来说的话，用 session_id {session_id} 交给 flow_chat。",
    )
    told = Text(
        "Give the user the text. What they say next goes to flow_chat with session_id {session_id}.",
        "把文本告诉用户。用户接下来说的话，用 session_id {session_id} 交给 flow_chat。",
    )
    working = Text(
        "It goes on by itself. Call flow_status with run_id {run_id} and wait_seconds 45.",
        "运行会自行继续。请用 run_id {run_id} 和 wait_seconds 45 调用 flow_status。",
    )
    answer = Text(
        "Put the question to the user, and pass on what they say, word for word, by flow_chat with "
        "session_id {session_id}. Do not answer in their place.",
        "把问题转给用户，再把用户的原话用 session_id {session_id} 交给 flow_chat；不要替用户回答。",
    )
    resume = Text(
        "Put it to the user. Then call flow_resume with run_id {run_id} and what they have decided; do not "
        "decide yourself.",
        "先问用户，再用 run_id {run_id} 和用户的决定调用 flow_resume；不要自行决定。",
    )
    ask = Text(
        "Call flow_status with run_id {run_id} and wait_seconds 45: the user is asked then.",
        "请用 run_id {run_id} 和 wait_seconds 45 调用 flow_status：届时会询问用户。",
    )
    outside = Text(
        "Give the user the text. It waits for a person of the business, an event or a time, not for the "
        "user. What the user says next goes to flow_chat with session_id {session_id}; flow_status with "
        "run_id {run_id} and wait_seconds 45 shows when it goes on.",
        "把文本告诉用户。运行在等待人工、事件或时间，不是等待用户。用户接下来说的话，用 session_id "
        "{session_id} 交给 flow_chat；用 run_id {run_id} 和 wait_seconds 45 调用 flow_status 可知何时继续。",
    )
    paused = Text(
        "It is paused. Call flow_resume with run_id {run_id} and action resume to go on.",
        "已暂停。要继续，请用 run_id {run_id} 和 action resume 调用 flow_resume。",
    )
    failed = Text(
        "Give the user the text; an additional problem is for the operator of the flows. When "
        "it is solved, call flow_resume with run_id {run_id} and action retry: it goes on with the step that "
        "failed, and nothing that was done is done again.",
        "把文本告诉用户；另外列出的问题是给流程管理员看的。解决之后，"
        "用 run_id {run_id} 和 action retry 调用 flow_resume：从失败的步骤继续，已完成的不会重做。",
    )
    aborted = Text(
        "It was aborted. flow_resume with run_id {run_id} and action resume continues it.",
        "已中止。用 run_id {run_id} 和 action resume 调用 flow_resume 可以重新继续。",
    )

    # Progress
    step = Text("{step} …", "{step} …")
    done = Text("{step}: done in {seconds:.1f} s", "{step}：完成，用时 {seconds:.1f} 秒")
    ended = Text("{step}: {status}", "{step}：{status}")
    asks = Text("asks: {reason}", "询问：{reason}")
    finished = Text("done", "完成")

    def name_of(self, value: str) -> str:
        """Return the name of a status, an action, or how a message was routed."""
        if value in _NAMES:
            return _NAMES[value].of(self.language)
        return _CHINESE_NAMES.get(value, value) if self.language == "zh" else value


_JSON = 2000  # maximum characters of arguments or a schema for people
_MESSAGE = 120
_SHOWN = 120
_OUTPUTS = 400


def message_of(run: Run) -> str:
    """Return the user's message that started a run."""
    return str(run.request.metadata.get("message") or run.request.goal)


def chat_result(reply: FlowReply, run: Run | None, *, file: FlowFile, by_asking: bool) -> ChatResult:
    """Return a reply as data.

    `by_asking`: the caller's client supports elicitation.
    """
    wording = ToolTexts(reply.language)
    status, text, pending, structured = reply.status, reply.text, reply.pending, reply.structured
    if run is not None and (run.status, run.pending) != (reply.status, reply.pending):
        status, pending, structured = run.status, run.pending, run.structured
        told = told_of_run(run, file=localize(file, reply.language), phrases=Phrases(reply.language))
        text = "\n\n".join(filter(None, (reply.late, told))) if told else reply.text
    key = {"completed": "told" if run is None else "completed", "input_required": "answer"}.get(
        status, status
    )
    if status == "input_required" and pending and not any(each.for_user for each in pending):
        key = "outside"
    elif status == "input_required" and by_asking and run is not None:
        key = "ask"
    waiting = reply.waiting
    return ChatResult(
        status=status,
        text=text,
        session_id=reply.session_id,
        flow_id=reply.flow_id,
        run_id=reply.run_id,
        pending=[pending_info(each) for each in pending],
        citations=[CitationInfo.model_validate(each, from_attributes=True) for each in reply.citations],
        structured=_object(structured),
        waiting=None
        if waiting is None
        else WaitingInfo(
            run_id=waiting.run_id,
            flow_id=waiting.flow_id,
            pending=[pending_info(each) for each in waiting.pending],
        ),
        route=route_info(reply.route),
        timings={name: round(seconds, 4) for name, seconds in reply.timings.items()},
        next=str(getattr(wording, key)).format(run_id=reply.run_id, session_id=reply.session_id),
    )


def chat_text(result: ChatResult, language: Language) -> str:
    """Return the text of `flow_chat`: the reply for the user, and details for the model."""
    wording, route = ToolTexts(language), result.route
    parts = [result.text]
    if result.citations and not any(f"[{each.id}]" in result.text for each in result.citations):
        titles = dict.fromkeys(escape_controls(each.title or each.source) for each in result.citations)
        parts.append("\n".join(f"[{number}] {title}" for number, title in enumerate(titles, 1)))
    by = wording.by.format(action=wording.name_of(route.action), how=wording.name_of(route.how))
    run = [wording.run.format(id=result.run_id)] if result.run_id else []
    lines = [f"({', '.join([wording.session.format(id=result.session_id), *run, by])})"]
    choices = [each for each in result.pending if each.id == CHOICE]
    asked = [each for each in result.pending if each.kind == "question" and each.id != CHOICE]
    for each in (*choices, *asked):
        properties = each.answer_schema.get("properties")
        if properties:
            lines.append(f"- {each.id}: {_json(properties)}")
    lines.append(wording.next.format(text=result.next))
    return "\n\n".join([*parts, "\n".join(lines)])


def route_info(route: RoutingOutcome) -> RouteInfo:
    """Return a route as data."""
    return RouteInfo.model_validate(route, from_attributes=True)


def run_info(run: Run, steps: Sequence[StepInfo], *, by_asking: bool) -> RunInfo:
    """Return a run as data, with the next step.

    `by_asking`: the caller's client supports elicitation, so that the user may decide.
    """
    wording = _wording_of(run)
    waits = "outside" if run.pending and not run.questions else "ask" if by_asking else "resume"
    key = {"input_required": waits}.get(run.status, run.status)
    return RunInfo(
        run_id=run.id,
        session_id=run.request.session_id,
        flow_id=run.request.profile,
        status=run.status,
        output=run.output,
        structured=_object(run.structured),
        problem=run.problem,
        pending=[pending_info(each) for each in run.pending],
        steps=list(steps),
        last_seq=run.last_seq,
        next=str(getattr(wording, key)).format(run_id=run.id, session_id=run.request.session_id),
    )


def run_text(run: Run, info: RunInfo) -> str:
    """Return the text about a run."""
    wording = _wording_of(run)
    outside = bool(run.pending) and not run.questions
    status = wording.name_of("outside" if outside else run.status)
    head = wording.head.format(
        run_id=run.id, flow=run.request.profile, session_id=run.request.session_id, status=status
    )
    lines = [head]
    if run.problem:
        lines.append(wording.problem.format(problem=run.problem))
    if run.pending:
        lines += [wording.waits, *(pending_line(each, wording) for each in run.pending)]
    if info.steps:
        lines += [wording.did, *(_step_line(step, wording) for step in info.steps)]
    blocks = ["\n".join(lines)]
    if run.output:
        blocks.append(run.output)
    if info.next:
        blocks.append(wording.next.format(text=info.next))
    return "\n\n".join(blocks)


def _wording_of(run: Run) -> ToolTexts:
    return ToolTexts(language_of_run(run.request))


def _step_line(step: StepInfo, wording: ToolTexts) -> str:
    outputs = f" {_short(_json(step.outputs), _OUTPUTS)}" if step.outputs else ""
    problem = f" {escape_controls(step.problem)}" if step.problem else ""
    status = wording.name_of(step.status)
    return f"- {escape_controls(step.step_id)}: {status}{outputs}{problem}"


def steps_of(events: Sequence[StreamEvent]) -> list[StepInfo]:
    """Return the state of each step, from the events of a run."""
    steps: dict[str, StepInfo] = {}
    for event in events:
        step_id = str(event.payload.get("step_id", ""))
        if event.type == "step_start":
            steps[step_id] = StepInfo(step_id=step_id, status="running", outputs={}, problem="")
        elif event.type == "step_result":
            outputs: Any = event.payload.get("outputs") or {}
            steps[step_id] = StepInfo(
                step_id=step_id,
                status=str(event.payload["status"]),
                outputs=outputs,
                problem=str(event.payload.get("problem") or ""),
            )
    return list(steps.values())


def pending_line(pending: Pending, wording: ToolTexts) -> str:
    """Return a pending request in a line."""
    template: str = getattr(wording, pending.kind)
    line = template.format(
        id=pending.id,
        reason=escape_controls(" ".join(pending.reason.split())),
        arguments=f" {_json(pending.arguments)}" if pending.arguments else "",
        schema=_json(pending.schema),
    )
    if pending.deadline is None:
        return line
    time = datetime.fromtimestamp(pending.deadline).astimezone().strftime("%H:%M:%S")
    return line + (wording.until if pending.for_user else wording.at).format(time=time)


def question_of(run: Run, pending: Pending, file: FlowFile) -> str:
    """Return a question for a form of the client, with the values that a yes or no is about."""
    language = language_of_run(run.request, setting=file.basic_settings.language)
    text = question_text(pending, file=localize(file, language), phrases=Phrases(language))
    return "\n".join(map(escape_controls, text.splitlines()))


def progress_line(run: Run) -> Callable[[StreamEvent], str]:
    """Return a function that describes an event of a run in a line; empty for internal ones."""
    wording = _wording_of(run)

    def line(event: StreamEvent) -> str:
        it = event.payload
        match event.type:
            case "step_start":
                said = wording.step.format(step=it["step_id"])
            case "step_result" if it["status"] == "success":
                said = wording.done.format(step=it["step_id"], seconds=it["seconds"])
            case "step_result":
                status = wording.name_of(str(it["status"]))
                said = wording.ended.format(step=it["step_id"], status=status)
            case "approval_required":
                said = wording.asks.format(reason=" ".join(it["pending"]["reason"].split()))
            case "operator_message":
                said = ": ".join(filter(None, (str(it["by"]), str(it["text"]))))
            case "tool_progress":
                said = str(it["message"])
            case "flow_finish":
                said = ": ".join(filter(None, (wording.finished, str(it.get("output") or ""))))
            case "error" | "aborted" | "paused":
                said = wording.name_of("failed" if event.type == "error" else event.type)
            case _:
                said = ""
        return escape_controls(said)[:_SHOWN]

    return line


def go_on_line(run: Run, command: str) -> str:
    """Return the line with the command that continues a run, for a terminal."""
    return _wording_of(run).go_on.format(command=command)


def run_line(run: Run) -> RunLine:
    """Return a run as data for a list."""
    return RunLine(
        run_id=run.id,
        session_id=run.request.session_id,
        flow_id=run.request.profile,
        message=_short(message_of(run), _MESSAGE),
        status=run.status,
        created=run.created,
        updated=run.updated,
        pending=len(run.pending),
    )


def runs_text(result: RunsResult) -> str:
    """Return the text of a list of runs."""
    budget = TextBudget(narrow="words, --status or --limit", separator="\n")
    for run in result.runs:
        budget.add(_run_line_text(run))
    return budget.text() if result.runs else "There is no such run."


def flows_text(result: FlowsResult) -> str:
    """Return the text of `flow_list`."""
    budget = TextBudget(narrow="loom://flows", separator="\n")
    for flow in result.flows:
        inputs = ", ".join(flow.inputs.get("properties", {})) or "none"
        tool = f" Tool: {flow.tool}." if flow.tool else ""
        budget.add(
            f"- {flow.flow_id} ({escape_controls(flow.name)}): {escape_controls(flow.description)}"
            f" Inputs: {escape_controls(inputs)}."
            f"{' It changes something.' if flow.changes_something else ''}"
            f"{' Hidden: do not tell users of it.' if flow.hidden else ''}{tool}"
        )
    for skill in result.skills:
        budget.add(f"- skill: {escape_controls(skill)}")
    for name in result.system_tools:
        budget.add(f"- system tool: {escape_controls(name)}")
    if result.unfinished:
        budget.add("Unfinished:")
        for run in result.unfinished:
            budget.add(_run_line_text(run))
    none = [] if result.flows or result.skills else ["There is no flow."]
    notes = [f"(Note: {escape_controls(each)})" for each in result.problems]
    return "\n".join([*none, *filter(None, [budget.text()]), *notes])


def _run_line_text(run: RunLine) -> str:
    waits = f", waits for {run.pending}" if run.pending else ""
    about = f"{run.flow_id}, {run.status}{waits}; session {run.session_id}"
    return f"- {run.run_id} ({about}): {escape_controls(run.message)}"


def handover_info(handover: Handover) -> HandoverInfo:
    """Return a handed-over conversation as data."""
    run, pending = handover.run, handover.pending
    return HandoverInfo(
        run_id=run.id,
        flow_id=run.request.profile,
        queue=pending.tool,
        about=handover.about,
        taken_by=pending.taken_by,
        created=handover.since,
        deadline=pending.deadline,
        agreed_schema=dict(pending.schema),
    )


def spoken_info(message: SpokenMessage) -> SpokenMessageInfo:
    """Return a message of a conversation as data."""
    return SpokenMessageInfo(by=message.by, text=message.text)


def operator_text(result: OperatorResult) -> str:
    """Return the text for operators: the conversations, a line each, or the messages of one."""
    if result.run is not None:
        return _run_line_text(result.run)
    if not result.conversations:
        return "No conversation waits for an operator."
    budget = TextBudget(narrow="run_id", separator="\n")
    for each in result.conversations:
        queue = f" in {escape_controls(each.queue)}" if each.queue else ""
        who = f"{escape_controls(each.taken_by)} has it" if each.taken_by else f"waits{queue}"
        since = datetime.fromtimestamp(each.created).astimezone().strftime("%Y-%m-%d %H:%M")
        budget.add(f"- {each.run_id} ({each.flow_id}, since {since}, {who}): {escape_controls(each.about)}")
    names = {"user": "Customer", "assistant": "Assistant", "operator": "Not read yet"}
    for message in result.messages:
        text = "\n".join(escape_controls(line) for line in message.text.splitlines() if line)
        budget.add(f"{names[message.by]}: {text}")
    if result.messages and (schema := result.conversations[0].agreed_schema):
        budget.add(f"To return: {_json(schema.get('properties', schema))}")
    return budget.text()


def events_text(events: Sequence[EventInfo]) -> str:
    """Return the events of a run, a line each; empty for none."""
    budget = TextBudget(TOKEN_CAP // 2, narrow="after_seq", separator="\n")
    for event in events:
        budget.add(f"{event.seq} {event.type} {_short(_json(event.payload), _OUTPUTS)}")
    return budget.text()


def explain_text(result: ExplainResult) -> str:
    """Return the text of `flow_explain`."""
    target = result.flow_id or result.tool or ", ".join(result.skills)
    action = result.action or "as the model decides"
    lines = [
        f"“{escape_controls(result.message)}” → {action}{f': {target}' if target else ''}"
        f" ({result.decided_by})"
    ]
    if result.run_id:
        lines.append(f"It would go to the run {result.run_id}.")
    if result.confidence is not None:
        lines.append(f"Confidence: {result.confidence:.2f}. {escape_controls(result.reason)}".rstrip())
    if result.problem:
        lines.append(f"The model did not decide: {escape_controls(result.problem)}")
    for match in result.matches:
        doubt = f"; in doubt: {match.doubt}" if match.doubt else ""
        fits = escape_controls(result.message[match.start : match.end])
        lines.append(f"- {match.flow_id}: {escape_controls(match.pattern)} fits “{fits}”{doubt}")
    if result.candidates:
        lines.append(f"One of: {', '.join(result.candidates)}")
    if result.inputs:
        lines.append(f"Inputs: {_json(result.inputs)}")
    if result.missing:
        lines.append(f"It would ask for: {', '.join(result.missing)}")
    lines.append(", ".join(f"{name} {1000 * seconds:.2f} ms" for name, seconds in result.timings.items()))
    return "\n".join(line for line in lines if line)


def _object(value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return {"result": value}


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return escape_controls(text if len(text) <= _JSON else f"{text[:_JSON]} …")


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most].rstrip()} …"
