"""Loom's own messages during a run, to models and people, in the language of the goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loom_core.cjk import is_chinese

__all__ = ["Notices"]

_BY_RULE = "A rule says so: "


@dataclass(frozen=True, slots=True)
class Notices:
    """Messages in one language; the caller fills in `{…}`.

    Attributes:
        go_on: the last answer was cut at its limit.
        empty: the last answer was empty.
        late: note after passages that came when the model had already started.
        repair: the final answer does not fit the schema.
        closing: the budget is exhausted.
        resumed: the run resumes after its end.
        not_run: a call that had not started when the run ended.
        stopped: a call that was running then.
        unknown: a call that was running when the process died, and is not repeated.
        refused: a person denied a call.
        reason: the reason for the denial.
        no_approver: no person can be asked.
        instead: tools that only read, inside `no_approver`.
        approval_timed_out: no one answered before the deadline.
        vetoed: a hook vetoed a call.
        withheld: a hook vetoed a result or an answer.
        no_calls_left: the budget of calls is exhausted.
        no_retries_left: a tool has asked for other arguments too often in a row.
        edited: a person changed the arguments.
        aborted: why there is no answer.
        aborted_by: who aborted the run, inside `aborted`.
        aborted_for: why, at the end of `aborted`.
        full_stop: the end of `aborted` without a reason.
        begun_before: why people are asked about a call that was running when the process died.
        by_rule: before the permission rule that requires an approval.
        sentences: translations of reasons of tools, permissions and servers, by the English text.
    """

    go_on: str = "Your answer was cut off. Continue exactly where it stopped, and repeat nothing."
    empty: str = "Your answer was empty. Call the tools that are needed, or give the final answer."
    late: str = (
        "(These passages arrived while you were answering. Use them if they add to your answer or correct "
        "it.)"
    )
    repair: str = (
        "Your final answer cannot be used:\n{problems}\nAnswer again: one JSON object that fits the JSON "
        "Schema, and nothing else."
    )
    closing: str = (
        "{problem} No tool can be called any more. Say what you have found and done so far, and what is "
        "still open."
    )
    resumed: str = "Continue the task."
    not_run: str = "The call was not made: the run was stopped before. {reason}"
    stopped: str = (
        "The call was stopped while it ran. It may have taken effect fully, partly, or not at all. {reason}"
    )
    unknown: str = (
        "It is not known whether the call took effect: the program ended while it ran, and it was not "
        "repeated. Check the current state before you rely on it."
    )
    refused: str = (
        "A person refused this call, and it was not made.{reason} Do not try it again in another way: "
        "continue without it, or say what you would need it for."
    )
    reason: str = " They say: {text}"
    no_approver: str = (
        "The call was not made: a person would have to approve it ({why}), and no one can be asked here. "
        "Continue without it{instead}, or say what you would need it for. The operator can permit it by a "
        "rule in `permissions`.{how}"
    )
    instead: str = ", with a tool that only reads ({tools})"
    approval_timed_out: str = (
        "The call was not made: no one approved it in time. Continue without it, or say what you would "
        "need it for. The operator can permit it by a rule in `permissions`."
    )
    vetoed: str = "The call was not made: {reason}"
    withheld: str = "(This text is withheld: {reason})"
    no_calls_left: str = (
        "The call was not made: this run has used all of its {most} tool calls. Answer with what you have."
    )
    no_retries_left: str = (
        "The call was not made: `{tool}` has refused its arguments several times in a row, and is not called "
        "any more. Take another way, or tell the user what you could not do and what you would need to know."
    )
    edited: str = "(A person changed the arguments before the call was made. It was made with: {arguments})"
    aborted: str = "The run was aborted{by}{reason}"
    aborted_by: str = " by {by}"
    aborted_for: str = ": {reason}"
    full_stop: str = "."
    begun_before: str = "It was running when the program ended, and it is unknown whether it took effect."
    by_rule: str = _BY_RULE
    sentences: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, language: Literal["zh", "en"]) -> Notices:
        """Return the messages of a language."""
        return _CHINESE if language == "zh" else _ENGLISH

    @classmethod
    def for_goal(cls, goal: str) -> Notices:
        """Return the messages in the language of a goal."""
        return cls.of("zh" if is_chinese(goal) else "en")

    def translate(self, reason: str) -> str:
        """Translate a reason, if it is one of Loom's own; return other texts unchanged."""
        if reason.startswith(_BY_RULE):
            return self.by_rule + reason.removeprefix(_BY_RULE)
        return self.sentences.get(reason, reason)

    def describe_abort(self, *, by: str, reason: str) -> str:
        """Describe an abort: by whom, and why, if known."""
        return self.aborted.format(
            by=self.aborted_by.format(by=self.translate(by)) if by else "",
            reason=self.aborted_for.format(reason=self.translate(reason)) if reason else self.full_stop,
        )


_ENGLISH = Notices()
_CHINESE = Notices(
    go_on="你的回答被截断了。请从中断处继续，不要重复已写的内容。",
    empty="你的回答是空的。请调用所需的工具，或给出最终回答。",
    late="（这些段落是在你回答期间找到的。如果其中有补充或不同的内容，请加以采用。）",
    repair=(
        "你的最终回答无法使用：\n{problems}\n"
        "请重新回答：只写一个符合该 JSON Schema 的 JSON 对象，不要写别的内容。"
    ),
    closing="{problem} 不能再调用任何工具。请说明到目前为止查到和完成了什么，还有什么没有完成。",
    resumed="请继续完成任务。",
    not_run="该调用没有执行：运行在此之前已停止。{reason}",
    stopped="该调用在执行过程中被停止，可能已全部完成、部分完成或完全没有完成。{reason}",
    unknown="不知道该调用是否已完成：程序在其执行期间退出，且没有人要求重新执行。在依赖其结果之前，请先查明实际情况。",
    refused="有人拒绝了该调用，因此没有执行。{reason}请不要换一种方式重试：跳过它继续，或说明你需要它做什么。",
    reason="理由：{text} ",
    no_approver=(
        "该调用没有执行：需要有人批准（{why}），而这里没有人可以询问。请跳过它继续{instead}，或说明你需要它做什么。"
        "管理员可以在 `permissions` 中用规则允许它。{how}"
    ),
    instead="（可改用只读工具 {tools}）",
    approval_timed_out=(
        "该调用没有执行：没有人及时批准。请跳过它继续，或说明你需要它做什么。"
        "管理员可以在 `permissions` 中用规则允许它。"
    ),
    vetoed="该调用没有执行：{reason}",
    withheld="（此内容未予显示：{reason}）",
    no_calls_left="该调用没有执行：本次运行允许的 {most} 次工具调用已用完。请用已有的信息回答。",
    no_retries_left=(
        "该调用没有执行：`{tool}` 已连续多次拒绝所给的参数，不再调用。"
        "请换一种方式，或告诉用户你没能做到什么、还需要知道什么。"
    ),
    edited="（执行之前有人修改了参数。实际参数为：{arguments}）",
    aborted="该运行已中止{by}{reason}",
    aborted_by="（操作者：{by}）",
    aborted_for="：{reason}",
    full_stop="。",
    begun_before="程序退出时该调用已开始执行，不知道是否已完成。",
    by_rule="规则如此规定：",
    sentences={
        "It may change something.": "它可能会更改某些内容。",
        "It may remove or overwrite something.": "它可能会删除或覆盖某些内容。",
        "It reaches beyond this machine or a closed set of things.": "它会访问本机或限定范围之外的内容。",
        "It runs a command on this machine.": "它会在本机上执行命令。",
        "It has not been approved yet.": "它尚未获得批准。",
        "Each call needs confirmation.": "每次执行都需要确认。",
        "Its description or its arguments have changed since it was approved.": (
            "自获得批准以来，它的描述或参数已经改变。"
        ),
        "The run that asked for this has ended.": "发起它的运行已结束。",
        "The task was cancelled.": "任务已取消。",
        "Interrupted at the terminal.": "已在终端中断。",
        "the user": "用户",
        "the user at the terminal": "终端用户",
    },
)
