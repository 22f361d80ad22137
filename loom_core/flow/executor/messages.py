"""Messages of flows to users, in English and Chinese.

Addresses, step ids and responses of servers are for operators (`Run.problem`); users, and models that read
the user's messages, get one of these sentences, or a text of the flow file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import NetFailure
from loom_core.flow.http.request import is_lost
from loom_core.flow.responses.phrases import Phrases, format_value
from loom_core.flow.understanding.language import in_language
from loom_core.flow.understanding.slots import RejectedValue, Schema, fits

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.understanding.language import Language

__all__ = ["FlowMessages"]


@dataclass(frozen=True, slots=True)
class FlowMessages:
    """Messages in one language; callers fill in `{…}`.

    Attributes:
        language: the language.
        missing: question for missing inputs.
        again: after it, why the last answer was rejected.
        used: an input cannot be changed any more, because a step has used it.
        maybe_used: the same, if the step may have been done.
        done_before: what had been done when a run was aborted.
        maybe_done_before: what had been sent then, with unknown outcome.
        begin: whether a flow may start.
        unknown: whether to repeat a step with an unknown outcome.
        join: between items of a list.
        space: between sentences.
        done: end of a flow without outputs.
        declined: the reason of a refusal, if the user gave none.
        denied: end of a run because a user said no.
        cancelled: end of a run that a user aborted.
        too_late: the same, if everything had been done by then.
        failed: end of a failed run; `{said}` is one of the following, or a text of the flow file.
        items_failed: so many items of a list have failed; the reasons follow.
        unreachable: the host could not be reached.
        late: a timeout, or a lost response.
        unsure: after a failure, if something may have been changed.
        busy: no request was sent, as too many were waiting.
        refused: the server refused the request.
        faulty: the server failed.
        unusable: the response is not usable.
        broken: an internal error.
        too_long: the flow exceeded its timeout.
        changed: the flow has changed since the run began.
        unapproved: it needs a tool that no operator has approved.
        confirm: whether to execute a step that calls a tool, by default.
        not_again: the outcome is unknown, and the user did not want to repeat it.
        waiting: the run waits for a time or an event.
        handed_over: the conversation goes to an operator.
        no_operator: no operator took it in time.
        not_agreed: the operator returned it without a result.
        several: an answer fits several of them.
        more: after a list of choices, how many it leaves out.
        no_choices: there is nothing to choose from.
    """

    language: Language = "en"
    missing: str = "{flow} needs: {names}."
    again: str = "That does not fit: {problem}"
    used: str = (
        "{name} cannot be changed any more: “{step}” has used it. To change it, cancel this and start again."
    )
    maybe_used: str = (
        "{name} cannot be changed now: “{step}” may have used it. Try it again unchanged, or check there "
        "first."
    )
    done_before: str = "Already done: {steps}."
    maybe_done_before: str = (
        "Already sent, but it is not known whether it was done: {steps}. Check there first."
    )
    begin: str = "Begin “{flow}”?"
    unknown: str = (
        "{step} had started, and it is not known whether it was done. Do it again? Check there first, so "
        "that it is not done twice."
    )
    join: str = ", "
    space: str = " "
    done: str = "Done."
    declined: str = "it was declined"
    denied: str = "All right, that was not done."
    cancelled: str = "“{flow}” is cancelled."
    too_late: str = "It is too late to cancel “{flow}”: it has been done."
    failed: str = "“{flow}” did not succeed. {said}"
    items_failed: str = "{failed} of {all} did not succeed."
    unreachable: str = "The system that it needs cannot be reached."
    late: str = "The system that it needs did not answer in time."
    unsure: str = "Whether it was done is not known."
    busy: str = "The system that it needs is too busy."
    refused: str = "The system that it needs did not accept it."
    faulty: str = "The system that it needs failed."
    unusable: str = "The answer of the system that it needs could not be understood."
    broken: str = "Something went wrong on our side."
    too_long: str = "It took too long."
    changed: str = "It has changed since it started."
    unapproved: str = "Sorry, it cannot be done at the moment."
    confirm: str = "Shall I go on with “{step}”?"
    not_again: str = "It is not known whether it was done, and it was not done again."
    waiting: str = "“{flow}” is waiting, and goes on by itself."
    handed_over: str = "I am passing you to a colleague. Please wait a moment; you can already write to them."
    no_operator: str = "None of my colleagues is free at the moment."
    not_agreed: str = "My colleague could not settle it."
    several: str = "Several fit."
    more: str = "… and {count} more: say a day, a name or another word of them to see fewer."
    no_choices: str = "There is nothing to choose from at the moment."

    def part_of(self, text: str) -> str:
        """Return the part of a bilingual text in this language; see `in_language`."""
        return in_language(text, self.language)

    @classmethod
    def of(cls, language: Language) -> FlowMessages:
        """Return the messages of a language."""
        return _CHINESE if language == "zh" else _ENGLISH

    def unfit_message(
        self, flow: FlowConfig, given: Mapping[str, Any], offered: Mapping[str, Any] | None = None
    ) -> str:
        """Return why inputs are invalid, by the schema of their flow; empty if it has no text for people.

        Args:
            flow: the flow.
            given: the inputs by name.
            offered: schemas of inputs that are chosen from lists.
        """
        schemas = cast("Mapping[str, Schema]", flow.input_schema.get("properties") or {})
        phrases = Phrases.of(self.language)
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


_ENGLISH = FlowMessages()
_CHINESE = FlowMessages(
    language="zh",
    missing="{flow}还需要：{names}。",
    again="这样不行：{problem}",
    used="{name}改不了了：“{step}”已经按原来的办好了。要改的话，请先取消，再重新办理。",
    maybe_used="{name}现在改不了：“{step}”可能已经按原来的办了。请先原样再试一次，或先去核实。",
    done_before="在此之前已经办好：{steps}。",
    maybe_done_before="在此之前已经发出、但不知道是否办好：{steps}。请先核实。",
    begin="要开始“{flow}”吗？",
    unknown="步骤{step}已经开始，但不知道是否完成。要再做一次吗？请先确认，以免重复。",
    join="、",
    space="",
    done="已完成。",
    declined="未获同意",
    denied="好的，没有执行。",
    cancelled="“{flow}”已取消。",
    too_late="来不及取消了：“{flow}”已经办好。",
    failed="“{flow}”没有办成。{said}",
    items_failed="{all}项中有{failed}项没有办成。",
    unreachable="办理所用的系统现在连不上。",
    late="办理所用的系统没有及时答复。",
    unsure="不知道是否已经办好。",
    busy="办理所用的系统现在太忙。",
    refused="办理所用的系统没有接受。",
    faulty="办理所用的系统出了故障。",
    unusable="办理所用的系统答复的内容无法理解。",
    broken="我们这边出了问题。",
    too_long="用的时间太长了。",
    changed="开始办理之后，流程有了变动。",
    unapproved="很抱歉，这项业务现在暂时办不了。",
    confirm="要我继续办理“{step}”吗？",
    not_again="不知道是否已经办好，也没有再办一次。",
    waiting="“{flow}”正在等待，到时会自动继续。",
    handed_over="我为您转接同事，请稍等，您现在就可以给对方留言。",
    no_operator="目前没有同事有空。",
    not_agreed="同事未能处理此事。",
    several="符合的有几个。",
    more="……还有{count}个：说出日期、名字或别的词，就可以少列一些。",
    no_choices="现在没有可以选的。",
)
