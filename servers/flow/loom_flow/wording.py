"""What is said of runs of flows, in English or Chinese, as their conversation is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from loom_core.flow.understanding.language import Language

__all__ = ["Wording"]

Names: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """The texts of one language; `{…}` is filled in by who uses it.

    Attributes:
        head: the first line about a run.
        statuses: what each status is called.
        step_statuses: what each status of a step is called.
        actions: what is done with a message, by name.
        hows: what decides that, by name.
        session, run: which they are.
        by: what was done, and what has decided it.
        problem: why it is not completed.
        waits: before what it waits for.
        approval: something that may be done or not.
        unknown: something that had begun when the program ended.
        question: something that is asked for.
        until: when it counts as refused.
        did: before what was done.
        next: before what to do now.
        go_on: the command that goes on with it.
        completed: what to do then; as the following.
        told: the message was answered without a run.
        working: it goes on.
        answer: the user answers by a message.
        resume: the user decides about a run without a conversation.
        ask: the user is asked by the next call.
        paused: it is paused.
        failed: it failed.
        aborted: it was aborted.
        step: progress: a step begins; as the following.
        done: a step has ended well.
        ended: a step has ended otherwise.
        asks: people are asked.
        finished: the flow is at its end.
    """

    head: str = "Run {run_id} of {flow} (session {session_id}): {status}"
    statuses: Names = (
        ("working", "working"),
        ("input_required", "waits for the user"),
        ("paused", "paused"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("aborted", "aborted"),
    )
    step_statuses: Names = ()
    actions: Names = ()
    hows: Names = ()
    session: str = "session {id}"
    run: str = "run {id}"
    by: str = "{action} ({how})"
    problem: str = "Problem: {problem}"
    waits: str = "It waits for:"
    approval: str = "- id {id}, yes or no: {reason}{arguments}"
    unknown: str = "- id {id}, again or not: {reason}{arguments}"
    question: str = "- id {id}: {reason} The answer has to fit {schema}"
    until: str = " (until {time}, then it counts as refused)"
    did: str = "It has done:"
    next: str = "Next: {text}"
    go_on: str = "Go on with: {command}"
    completed: str = (
        "Give the user the text. What they say next goes to flow_chat with session_id {session_id}."
    )
    told: str = "Give the user the text. What they say next goes to flow_chat with session_id {session_id}."
    working: str = "It goes on by itself. Call flow_status with run_id {run_id} and wait_seconds 45."
    answer: str = (
        "Put the question to the user, and pass on what they say, word for word, by flow_chat with "
        "session_id {session_id}. Do not answer in their place."
    )
    resume: str = (
        "Put it to the user. Then call flow_resume with run_id {run_id} and what they have decided; do not "
        "decide yourself."
    )
    ask: str = "Call flow_status with run_id {run_id} and wait_seconds 45: the user is asked then."
    paused: str = "It is paused. Call flow_resume with run_id {run_id} and action resume to go on."
    failed: str = (
        "Give the user the text; a problem that is told besides is for whoever looks after the flows. When "
        "it is solved, call flow_resume with run_id {run_id} and action retry: it goes on with the step that "
        "failed, and nothing that was done is done again."
    )
    aborted: str = "It was ended. flow_resume with run_id {run_id} and action resume takes it up again."
    step: str = "{step} …"
    done: str = "{step}: done in {seconds:.1f} s"
    ended: str = "{step}: {status}"
    asks: str = "asks: {reason}"
    finished: str = "done"

    @classmethod
    def of(cls, language: Language) -> Wording:
        """The texts of a language."""
        return _CHINESE if language == "zh" else _ENGLISH

    def named(self, names: Names, name: str) -> str:
        """What something is called; as in the data, where there is no other name."""
        return dict(names).get(name, name)


_ENGLISH = Wording()
_CHINESE = Wording(
    head="流程 {flow} 的运行 {run_id}（会话 {session_id}）：{status}",
    statuses=(
        ("working", "进行中"),
        ("input_required", "等待用户"),
        ("paused", "已暂停"),
        ("completed", "已完成"),
        ("failed", "失败"),
        ("aborted", "已中止"),
    ),
    step_statuses=(
        ("running", "进行中"),
        ("success", "完成"),
        ("failure", "失败"),
        ("unknown", "不知是否完成"),
        ("declined", "未获同意"),
    ),
    actions=(
        ("flow", "办理流程"),
        ("skill", "使用技能"),
        ("tool", "调用工具"),
        ("respond", "回答"),
        ("clarify", "询问"),
        ("answer", "作为回答"),
        ("correct", "更正"),
        ("approve", "同意"),
        ("deny", "不同意"),
        ("cancel", "取消"),
        ("retry", "再试"),
        ("greet", "寒暄"),
    ),
    hows=(
        ("rules", "规则"),
        ("model", "模型"),
        ("pending", "正在等待的问题"),
        ("choice", "刚才的选择"),
        ("manners", "礼貌用语"),
        ("given", "指定"),
        ("none", "无"),
    ),
    session="会话 {id}",
    run="运行 {id}",
    by="{action}（{how}）",
    problem="问题：{problem}",
    waits="正在等待：",
    approval="- id {id}，是或否：{reason}{arguments}",
    unknown="- id {id}，是否再做一次：{reason}{arguments}",
    question="- id {id}：{reason} 回答须符合 {schema}",
    until="（{time} 之前有效，之后视为拒绝）",
    did="已经做了：",
    next="下一步：{text}",
    go_on="继续：{command}",
    completed="把文本告诉用户。用户接下来说的话，用 session_id {session_id} 交给 flow_chat。",
    told="把文本告诉用户。用户接下来说的话，用 session_id {session_id} 交给 flow_chat。",
    working="运行会自行继续。请用 run_id {run_id} 和 wait_seconds 45 调用 flow_status。",
    answer=("把问题转给用户，再把用户的原话用 session_id {session_id} 交给 flow_chat；不要替用户回答。"),
    resume="先问用户，再用 run_id {run_id} 和用户的决定调用 flow_resume；不要自行决定。",
    ask="请用 run_id {run_id} 和 wait_seconds 45 调用 flow_status：届时会询问用户。",
    paused="已暂停。要继续，请用 run_id {run_id} 和 action resume 调用 flow_resume。",
    failed=(
        "把文本告诉用户；另外列出的问题是给流程管理员看的。解决之后，"
        "用 run_id {run_id} 和 action retry 调用 flow_resume：从失败的步骤继续，已完成的不会重做。"
    ),
    aborted="已中止。用 run_id {run_id} 和 action resume 调用 flow_resume 可以重新继续。",
    step="{step} …",
    done="{step}：完成，用时 {seconds:.1f} 秒",
    ended="{step}：{status}",
    asks="询问：{reason}",
    finished="完成",
)
