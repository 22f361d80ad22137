"""Messages of flows to users, in English and Chinese.

Addresses, step ids and responses of servers are for operators (`Run.problem`); users, and models that read
the user's messages, get one of these sentences, or a text of the flow file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loom_core.errors import NetFailure
from loom_core.flow.http.request import is_lost
from loom_core.flow.responses.phrases import Phrases, format_value
from loom_core.flow.understanding.choices import properties_of
from loom_core.flow.understanding.language import BilingualTexts, Text, in_language
from loom_core.flow.understanding.slots import RejectedValue, fits

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig

__all__ = ["FlowMessages"]


class FlowMessages(BilingualTexts):
    """Messages in one language; callers fill in `{…}`."""

    # Questions for missing inputs; `again`: why the last answer was rejected
    missing = Text("{flow} needs: {names}.", "{flow}还需要：{names}。")
    again = Text("That does not fit: {problem}", "这样不行：{problem}")

    # An input cannot be changed any more: a step has used it, or may have
    used = Text(
        "{name} cannot be changed any more: “{step}” has used it. To change it, cancel this and start again.",
        "{name}改不了了：“{step}”已经按原来的办好了。要改的话，请先取消，再重新办理。",
    )
    maybe_used = Text(
        "{name} cannot be changed now: “{step}” may have used it. Try it again unchanged, or check there "
        "first.",
        "{name}现在改不了：“{step}”可能已经按原来的办了。请先原样再试一次，或先去核实。",
    )

    # The side effects of a run that ended early
    done_before = Text("Already done: {steps}.", "在此之前已经办好：{steps}。")
    maybe_done_before = Text(
        "Already sent, but it is not known whether it was done: {steps}. Check there first.",
        "在此之前已经发出、但不知道是否办好：{steps}。请先核实。",
    )

    # Questions for a yes or no: whether to begin, and to repeat a step with an unknown outcome
    begin = Text("Begin “{flow}”?", "要开始“{flow}”吗？")
    unknown = Text(
        "{step} had started, and it is not known whether it was done. Do it again? Check there first, so "
        "that it is not done twice.",
        "步骤{step}已经开始，但不知道是否完成。要再做一次吗？请先确认，以免重复。",
    )

    # Between items of a list, and between sentences
    join = Text(", ", "、")
    space = Text(" ", "")

    # The end of a run; `too_late`: it was cancelled when everything had been done
    done = Text("Done.", "已完成。")
    declined = Text("it was declined", "未获同意")
    denied = Text("All right, that was not done.", "好的，没有执行。")
    cancelled = Text("“{flow}” is cancelled.", "“{flow}”已取消。")
    too_late = Text(
        "It is too late to cancel “{flow}”: it has been done.", "来不及取消了：“{flow}”已经办好。"
    )

    # Failures: `{said}` is one of the following, or a text of the flow file
    failed = Text("“{flow}” did not succeed. {said}", "“{flow}”没有办成。{said}")
    items_failed = Text("{failed} of {all} did not succeed.", "{all}项中有{failed}项没有办成。")
    unreachable = Text("The system that it needs cannot be reached.", "办理所用的系统现在连不上。")
    late = Text("The system that it needs did not answer in time.", "办理所用的系统没有及时答复。")
    unsure = Text("Whether it was done is not known.", "不知道是否已经办好。")
    busy = Text("The system that it needs is too busy.", "办理所用的系统现在太忙。")
    refused = Text("The system that it needs did not accept it.", "办理所用的系统没有接受。")
    faulty = Text("The system that it needs failed.", "办理所用的系统出了故障。")
    unusable = Text(
        "The answer of the system that it needs could not be understood.",
        "办理所用的系统答复的内容无法理解。",
    )
    broken = Text("Something went wrong on our side.", "我们这边出了问题。")
    too_long = Text("It took too long.", "用的时间太长了。")
    changed = Text("It has changed since it started.", "开始办理之后，流程有了变动。")

    # Tools: one that no operator has approved, and the question before a call
    unapproved = Text("Sorry, it cannot be done at the moment.", "很抱歉，这项业务现在暂时办不了。")
    confirm = Text("Shall I go on with “{step}”?", "要我继续办理“{step}”吗？")
    not_again = Text(
        "It is not known whether it was done, and it was not done again.",
        "不知道是否已经办好，也没有再办一次。",
    )

    # Waits for something else than the user
    waiting = Text("“{flow}” is waiting, and goes on by itself.", "“{flow}”正在等待，到时会自动继续。")
    handed_over = Text(
        "I am passing you to a colleague. Please wait a moment; you can already write to them.",
        "我为您转接同事，请稍等，您现在就可以给对方留言。",
    )
    no_operator = Text("None of my colleagues is free at the moment.", "目前没有同事有空。")
    not_agreed = Text("My colleague could not settle it.", "同事未能处理此事。")

    # Choices from a list
    several = Text("Several fit.", "符合的有几个。")
    more = Text(
        "… and {count} more: say a day, a name or another word of them to see fewer.",
        "……还有{count}个：说出日期、名字或别的词，就可以少列一些。",
    )
    no_choices = Text("There is nothing to choose from at the moment.", "现在没有可以选的。")

    def part_of(self, text: str) -> str:
        """Return the part of a bilingual text in this language; see `in_language`."""
        return in_language(text, self.language)

    def unfit_message(
        self, flow: FlowConfig, given: Mapping[str, Any], offered: Mapping[str, Any] | None = None
    ) -> str:
        """Return why inputs are invalid, by the schema of their flow; empty if it has no text for people.

        `offered` has the schemas of inputs that are chosen from lists.
        """
        schemas = properties_of(flow.input_schema)
        phrases = Phrases(self.language)
        for name, value in given.items():
            if offered and name in offered:
                if not fits(value, name, offered[name]):
                    return phrases.unoffered.format(said=format_value(value))
                continue
            if name not in schemas or fits(value, name, schemas[name]):
                continue
            number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
            if why := phrases.describe_valid_values(RejectedValue(name, number, schemas[name])):
                return why
        return ""

    def describe_failed_request(self, outcome: NetFailure | int, *, unsure: bool) -> str:
        """Return the message for a failed request.

        Args:
            outcome: the error, or the HTTP status of the response.
            unsure: whether something may have been changed nevertheless.
        """
        said = self._of_status(outcome) if isinstance(outcome, int) else self._of_failure(outcome)
        return f"{said}{self.space}{self.unsure}" if unsure else said

    def _of_failure(self, failure: NetFailure) -> str:
        known: Mapping[NetFailure, str] = {
            "connection": self.unreachable,
            "interrupted": self.late,
            "timeout": self.late,
            "unavailable": self.busy,
            "unusable": self.unusable,
        }
        return known.get(failure, self.broken)

    def _of_status(self, status: int) -> str:
        if is_lost(status):
            return self.late
        if status in {429, 503}:
            return self.busy
        if status in {401, 403, 407}:  # our credentials are rejected
            return self.broken
        if status >= 500:
            return self.faulty
        return self.broken if 300 <= status < 400 else self.refused
