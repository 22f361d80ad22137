"""Phrases of the assistant, in English and Chinese."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from loom_core.cjk import has_cjk, is_chinese
from loom_core.flow.understanding.choices import SHOWN, choices_of, with_titles
from loom_core.flow.understanding.formats import format_in_words
from loom_core.flow.understanding.language import Language, in_language

if TYPE_CHECKING:
    from loom_core.flow.config.models import BasicSettings
    from loom_core.flow.understanding.slots import RejectedValue, Schema
    from loom_core.runs.run import RunRequest
    from loom_core.tools.interface import Tool

__all__ = ["LANGUAGE", "Phrases", "format_value", "language_of", "language_of_run"]

LANGUAGE = "language"
"""Key in `RunRequest.metadata` for the language of a run's conversation."""

_NUMBERED = re.compile(r"[A-Za-z0-9_#-]*[0-9][A-Za-z0-9_#-]*")  # 3, BO20418: in no language
_MAX_LENGTH = 300  # characters of a value
_CLEAR = 3  # words in another language that change a conversation's; fewer may be a name or a number


@dataclass(frozen=True, slots=True)
class Phrases:
    """Phrases in one language; callers fill in `{…}`.

    Attributes:
        language: the language.
        hello: greeting, if the file has none.
        able: what the assistant can do, after a greeting or if nothing matches.
        welcome: reply to thanks.
        bye: reply to a farewell.
        noted: reply to assent without a question.
        unknown: nothing matches and nothing is known.
        unasked: the same, if the knowledge sources failed.
        found: before passages that are the answer.
        which: which of several flows is meant.
        whether: whether a flow is meant.
        unwanted: the same, if the message negates it.
        explain: question if the model is unsure and has no question.
        further: before the reply to a further request of the same message.
        dropped: the user wants none of the options.
        nothing: there is nothing to cancel.
        cancelled: a run without its own text was cancelled.
        failed: a run has failed; `{problem}` is the user's message.
        broken: the default for `{problem}`.
        try_again: after it, what the user can do.
        correct: the same, if an input may be corrected.
        working: a run continues.
        paused: a run is paused.
        passed_on: a message was passed on to an operator.
        by_operator: a message of an operator.
        with_operator: an operator has the conversation.
        begin: whether a flow may start, with the inputs found.
        values: its inputs.
        shall: whether to make a call of a skill, by default.
        unapproved: a tool is needed that no operator has approved.
        again: before a question that is repeated because the message was no answer.
        late: an answer came too late.
        refused: before a question that is repeated because a number is invalid.
        between, at_least, at_most: the valid numbers.
        not_before, not_after, today: the valid dates or times.
        whole, any_whole, any_number: the form of a number.
        wanted: the form of the value that is asked for.
        long_enough: the form of a text.
        unoffered: an answer is none of the choices.
        ambiguous: asks which of several values is meant.
        formats: the form of values by their `format`.
        either: which of several inputs a correction is for.
        not_open: the user wants to cancel a flow that is not active.
        back: the conversation returns to an interrupted run.
        one_by_one: more questions follow.
        options: after the name of an input, its choices.
        join: between items of a list.
        space: between sentences.
    """

    language: Language
    hello: str
    able: str
    welcome: str
    bye: str
    noted: str
    unknown: str
    unasked: str
    found: str
    which: str
    whether: str
    unwanted: str
    explain: str
    further: str
    dropped: str
    nothing: str
    cancelled: str
    failed: str
    broken: str
    try_again: str
    correct: str
    working: str
    paused: str
    passed_on: str
    by_operator: str
    with_operator: str
    begin: str
    values: str
    shall: str
    unapproved: str
    again: str
    late: str
    refused: str
    between: str
    at_least: str
    at_most: str
    not_before: str
    not_after: str
    today: str
    whole: str
    any_whole: str
    any_number: str
    wanted: str
    long_enough: str
    unoffered: str
    ambiguous: str
    formats: Mapping[str, str]
    either: str
    not_open: str
    back: str
    one_by_one: str
    options: str
    join: str
    space: str

    @classmethod
    def of(cls, language: Language) -> Phrases:
        """Return the phrases of a language."""
        return _CHINESE if language == "zh" else _ENGLISH

    def what_can_be_done(self, titles: Iterable[str]) -> str:
        """Return the list of what the assistant can do; empty if nothing."""
        named = [in_language(title, self.language) for title in titles if title]
        return self.able.format(flows=self.join.join(named)) if named else ""

    def rejection_text(self, refused: RejectedValue) -> str:
        """Explain why a value was rejected and what is valid, as far as its schema has texts for people."""
        if refused.choices:
            meant = (format_in_words(each, refused.schema, self.language) for each in refused.choices)
            return self.ambiguous.format(name=refused.title, values=self.join.join(map(str, meant)))
        wants = self.describe_valid_values(refused)
        if refused.said and (limit := self._format_limit(refused.schema)):
            value = format_in_words(refused.said, {"format": refused.schema["format"]}, self.language)
            return self.refused.format(name=refused.title, value=value, limit=limit)
        if refused.said:
            return f"{self.unoffered.format(said=refused.said)}{self.space}{wants}".rstrip()
        return wants if wants and refused.value is not None else f"{self.again}{self.space}{wants}".rstrip()

    def describe_valid_values(self, refused: RejectedValue) -> str:
        """Describe valid values; empty if the schema has no text for people."""
        form = self._form(refused).rstrip("。.")
        if refused.value is None:
            return self.wanted.format(name=refused.title, form=form) if form else ""
        if refused.is_whole and refused.value == int(refused.value):
            form = self._limit(refused)
        return self.refused.format(name=refused.title, value=refused.value, limit=form) if form else ""

    def with_values(self, text: str, values: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
        """Return a question with the values that it is about.

        Args:
            text: the question.
            values: by name.
            schema: their schema, with titles.
        """
        properties = cast("Mapping[str, Any]", schema.get("properties") or {})
        lines = [
            self.values.format(name=self._title(name, properties.get(name)), value=format_value(value))
            for name, value in with_titles(schema, values, self.language).items()
        ]
        return "\n".join([text, *lines])

    def confirmation(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the default confirmation question for a tool call."""
        return self.with_values(self.shall, arguments, tool.args_schema)

    def _title(self, name: str, part: object) -> str:
        title = cast("Mapping[str, Any]", part).get("title") if isinstance(part, Mapping) else None
        return in_language(title, self.language) if isinstance(title, str) and title else name

    def ask_which_input(self, either: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
        """Return the question which of several inputs a correction is for.

        Args:
            either: the new value of each.
            schema: their schema.
        """
        parts = schema.get("properties", {})
        names = self.join.join(str(parts.get(name, {}).get("title") or name) for name in either)
        value = next(iter(with_titles(schema, either, self.language).values()))
        return self.either.format(names=names, value=value)

    def _form(self, refused: RejectedValue) -> str:
        """Describe the form of an input, as far as its schema has texts for people."""
        schema = refused.schema
        if not choices_of(schema) and schema.get("type") in {"integer", "number"}:
            limit = self._limit(refused)
            if refused.is_whole:
                return self.whole.format(limit=limit) if limit else self.any_whole
            return limit or self.any_number
        if choices := choices_of(schema):
            labels = [choice.label_in(self.language) for choice in choices[:SHOWN]]
            return self.join.join([*labels, "…"] if len(choices) > SHOWN else labels)
        if isinstance(about := schema.get("description"), str) and about:
            return about
        if form := self.formats.get(str(schema.get("format"))):
            return form
        least = schema.get("minLength")
        return self.long_enough.format(least=least) if isinstance(least, int) and least > 1 else ""

    def _format_limit(self, schema: Schema) -> str:
        """Describe the bounds of a `format`; empty if there are none."""
        low, high = (
            self.today if bound == "today" else format_in_words(bound, schema, self.language)
            for bound in (schema.get("formatMinimum"), schema.get("formatMaximum"))
        )
        if not low and not high:
            return ""
        form = self.not_after if not low else self.not_before if not high else self.between
        return form.format(low=low, high=high)

    def _limit(self, refused: RejectedValue) -> str:
        low, high = refused.low, refused.high
        if low is None and high is None:
            return ""
        form = self.at_most if low is None else self.at_least if high is None else self.between
        return form.format(low=low, high=high)

    def greeting_of(self, settings: BasicSettings) -> str:
        """Return the greeting of a file, or the default one."""
        if settings.greeting:
            return settings.greeting
        name = settings.name
        if self.language == "zh":
            return f"您好，我是{name}。" if name else self.hello
        return f"Hello, I am {name}." if name else self.hello


_ENGLISH = Phrases(
    language="en",
    hello="Hello.",
    able="I can help you with: {flows}.",
    welcome="You are welcome.",
    bye="Goodbye.",
    noted="All right.",
    unknown="I found nothing about that.",
    unasked="I cannot look that up at the moment. Please ask again later.",
    found="This is what I found:",
    which="Which of these do you mean?",
    whether="Do you want “{flow}”?",
    unwanted="All right, I will not start “{flow}”. If you want it after all, say yes.",
    explain="Could you say more precisely what you need?",
    further="About “{request}”:",
    dropped="All right, I will leave it.",
    nothing="There is nothing in progress to cancel.",
    cancelled="“{flow}” is cancelled.",
    failed="“{flow}” did not succeed. {problem}",
    broken="Something went wrong on our side.",
    try_again="To try it once more, say “try again”.",
    correct="To try it once more, say “try again”; to change something first, say what, as in “make it …”.",
    working="“{flow}” is in progress; I am still working on it.",
    paused="“{flow}” is paused.",
    passed_on="I have passed that on to my colleague.",
    by_operator="{by}: {text}",
    with_operator="{by} is talking with you.",
    begin="Do I understand correctly that you want “{flow}”, with this?",
    values="{name}: {value}",
    shall="Shall I do this for you?",
    unapproved="Sorry, that cannot be done at the moment.",
    again="I did not understand that as an answer.",
    late="The time to answer had run out.",
    refused="{name} cannot be {value}: {limit}.",
    between="{low} to {high}",
    at_least="{low} or more",
    at_most="{high} or less",
    not_before="{low} or later",
    not_after="{high} or earlier",
    today="today",
    whole="a whole number, {limit}",
    any_whole="a whole number",
    any_number="a number",
    wanted="{name}: {form}.",
    long_enough="at least {least} characters",
    unoffered="“{said}” is not one of the choices.",
    ambiguous="{name}: which of these do you mean: {values}?",
    formats={
        "date": "a date, such as 1 December or 2026-12-01",
        "time": "a time of the day, such as 3:30 pm or 15:30",
        "date-time": "a date and a time, such as 1 December, 3:30 pm",
        "duration": "how long, such as an hour and a half",
        "money": "an amount, such as 1,200",
        "phone": "a phone number, with +country code if it is abroad",
        "email": "an e-mail address",
        "address": "a street with a number",
    },
    either="Which do you mean: {names}? Please name it, as in “change … to {value}”.",
    not_open="“{flow}” is not in progress here; what is already done cannot be cancelled here.",
    back="“{flow}” is still open: {question}",
    one_by_one="(One of {count} questions.)",
    options=" ({options})",
    join=", ",
    space=" ",
)
_CHINESE = Phrases(
    language="zh",
    hello="您好。",
    able="我可以帮您办理：{flows}。",
    welcome="不客气。",
    bye="再见。",
    noted="好的。",
    unknown="没有找到相关的内容。",
    unasked="资料现在查不了，请稍后再问。",
    found="找到以下内容：",
    which="您是指下面哪一项？",
    whether="您是要办理“{flow}”吗？",
    unwanted="好的，不办理“{flow}”。如果要办理，请回答“是”。",
    explain="能再说得具体一点吗？",
    further="关于“{request}”：",
    dropped="好的，那先不办。",
    nothing="现在没有可以取消的事项。",
    cancelled="“{flow}”已取消。",
    failed="“{flow}”没有办成。{problem}",
    broken="我们这边出了问题。",
    try_again="要再试，请说“再试一次”。",
    correct="要再试，请说“再试一次”；要先改正哪一项，请说“改成……”。",
    working="“{flow}”正在办理，还没有结束。",
    paused="“{flow}”已暂停。",
    passed_on="已转告同事。",
    by_operator="{by}：{text}",
    with_operator="{by}正在为您服务。",
    begin="您是要按以下内容办理“{flow}”吗？",
    values="{name}：{value}",
    shall="要我为您这样办理吗？",
    unapproved="很抱歉，这件事现在暂时办不了。",
    again="这句话没有看懂。",
    late="回答的时间已经过了。",
    refused="{name}不能是{value}：{limit}。",
    between="只能是{low}到{high}",
    at_least="至少是{low}",
    at_most="最多是{high}",
    not_before="{low}或以后",
    not_after="{high}或以前",
    today="今天",
    whole="{limit}的整数",
    any_whole="整数",
    any_number="数字",
    wanted="{name}：{form}。",
    long_enough="至少{least}个字",
    unoffered="没有“{said}”这一项。",
    ambiguous="{name}：您指的是哪一个：{values}？",
    formats={
        "date": "日期，如12月1日或 2026-12-01",
        "time": "几点，如下午三点半或 15:30",
        "date-time": "日期和时间，如12月1日下午三点半",
        "duration": "多长时间，如一个半小时",
        "money": "金额，如 1200",
        "phone": "电话号码，境外号码请带国家区号",
        "email": "邮箱地址",
        "address": "带门牌号的地址",
    },
    either="您要改的是哪一项：{names}？请说“把……改成{value}”。",
    not_open="“{flow}”现在没有在办理；已经办好的，这里取消不了。",
    back="“{flow}”还没有办完：{question}",
    one_by_one="（共{count}个问题，这是其中一个。）",
    options="（{options}）",
    join="、",
    space="",
)


def format_value(value: object, *, most: int = _MAX_LENGTH) -> str:
    """Format a value for people: a text as it is, else JSON, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[:most]}…"


def language_of(message: str, *, setting: Literal["auto", "zh", "en"] = "auto", before: str = "") -> Language:
    """Return the language to answer in: as configured, else that of the message.

    Args:
        message: the user's message.
        setting: the configured language.
        before: the language of the conversation. It applies to messages in any language: a number, the id of
            an order, “ok” or “no”.
    """
    if setting != "auto":
        return setting
    said = _NUMBERED.sub(" ", message)
    words = sum(any(map(str.isalpha, word)) for word in said.split())
    if before == "zh" and (has_cjk(said) or words < _CLEAR):
        return "zh"
    return "zh" if is_chinese(said) else "en"


def language_of_run(request: RunRequest, *, setting: Literal["auto", "zh", "en"] = "auto") -> Language:
    """Return the language of a run: that of its conversation, else that of its message."""
    known = request.metadata.get(LANGUAGE)
    if known in {"zh", "en"}:
        return "zh" if known == "zh" else "en"
    return language_of(str(request.metadata.get("message") or request.goal), setting=setting)
