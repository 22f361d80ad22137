"""What is said of runs, in English or Chinese, as their goal is."""

from __future__ import annotations

from dataclasses import dataclass

from loom_core.cjk import is_chinese

__all__ = ["Wording"]


@dataclass(frozen=True, slots=True)
class Wording:
    """The texts of one language; `{…}` is filled in by who uses it.

    Attributes:
        head: the first line of an answer.
        statuses: what each status is called.
        problem: why it is not completed.
        waits: before what it waits for.
        call: a call that may be made or not.
        unknown: a call that had begun when the program ended.
        question: a question of a tool.
        until: when it counts as refused.
        spent: what it has taken.
        next: before what to do now.
        completed: what to do then; as the following.
        working: it goes on.
        decide: a person decides through `agent_decide`.
        ask: the user is asked by the next call.
        elsewhere: somebody else decides.
        paused: it is paused.
        ended: it failed or was aborted.
        starts: progress: the model is asked; as the following.
        uses: a tool runs.
        done: a tool has ended well.
        failed: a tool has ended badly.
        asks: people are asked.
        decided: they have decided.
        retried: the model is asked again.
        compacted: the conversation was shortened.
        finished: the final answer is there.
        may_run: asks for the approval of a call.
        may_run_again: asks whether an unknown call is to be made again.
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
    problem: str = "Problem: {problem}"
    waits: str = "It waits for:"
    call: str = "- id {id}: may `{tool}` be called with {arguments}? {reason}"
    unknown: str = "- id {id}: shall `{tool}` be called again with {arguments}? {reason}"
    question: str = "- id {id}: `{tool}` asks: {reason} The answer has to fit {schema}"
    until: str = " (until {time}, then it counts as refused)"
    spent: str = "Turns: {turns}, calls: {calls}, tokens: {tokens}{cost}"
    next: str = "Next: {text}"
    completed: str = (
        "Give the user the output. To go on with this conversation, call agent_reply with session_id "
        "{session_id}."
    )
    working: str = "It goes on by itself. Call agent_wait with run_id {run_id} for what comes of it."
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
    compacted: str = "made the conversation shorter: {before} → {after} tokens"
    finished: str = "done"
    may_run: str = "The agent wants to call {tool} with {arguments}. {reason} Allow it?"
    may_run_again: str = "The agent had begun to call {tool} with {arguments}. {reason} Call it again?"

    @classmethod
    def for_goal(cls, goal: str) -> Wording:
        """The texts in the language of a goal."""
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
    compacted="已压缩对话：{before} → {after} 词元",
    finished="完成",
    may_run="智能体要以 {arguments} 调用 {tool}。{reason} 是否允许？",
    may_run_again="智能体曾开始以 {arguments} 调用 {tool}。{reason} 是否再次调用？",
)
