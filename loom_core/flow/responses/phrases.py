"""Phrases of the assistant, in English and Chinese."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from loom_core.cjk import has_cjk, is_chinese
from loom_core.flow.understanding.choices import SHOWN, choices_of, properties_of, with_titles
from loom_core.flow.understanding.formats import format_in_words
from loom_core.flow.understanding.language import BilingualTexts, Language, Text, in_language
from loom_core.flow.understanding.slots import is_free_text

if TYPE_CHECKING:
    from loom_core.flow.config.models import BasicSettings
    from loom_core.flow.understanding.slots import RejectedValue, Schema
    from loom_core.runs.run import RunRequest
    from loom_core.tools.interface import Tool

__all__ = ["LANGUAGE", "Phrases", "format_value", "language_of", "language_of_run"]

LANGUAGE = "language"
"""Key in `RunRequest.metadata` for the language of a run's conversation."""

# 3, BO20418: in no language. The lookbehind keeps the search linear.
_NUMBERED = re.compile(r"(?<![A-Za-z0-9_#-])[A-Za-z_#-]*[0-9][A-Za-z0-9_#-]*")
_MAX_LENGTH = 300  # characters of a value
_CLEAR = 3  # words in another language that change a conversation's; fewer may be a name or a number


_FORMATS = {
    "date": Text("a date, such as 1 December or 2026-12-01", "日期，如12月1日或 2026-12-01"),
    "time": Text("a time of the day, such as 3:30 pm or 15:30", "几点，如下午三点半或 15:30"),
    "date-time": Text("a date and a time, such as 1 December, 3:30 pm", "日期和时间，如12月1日下午三点半"),
    "duration": Text("how long, such as an hour and a half", "多长时间，如一个半小时"),
    "money": Text("an amount, such as 1,200", "金额，如 1200"),
    "phone": Text("a phone number, with +country code if it is abroad", "电话号码，境外号码请带国家区号"),
    "email": Text("an e-mail address", "邮箱地址"),
    "address": Text("a street with a number", "带门牌号的地址"),
}
"""The form of values by their `format`."""


class Phrases(BilingualTexts):
    """Phrases in one language; callers fill in `{…}`."""

    # Small talk, and answers in words: `unasked` if the knowledge sources failed, `found` before passages
    hello = Text("Hello.", "您好。")
    able = Text("I can help you with: {flows}.", "我可以帮您办理：{flows}。")
    welcome = Text("You are welcome.", "不客气。")
    bye = Text("Goodbye.", "再见。")
    noted = Text("All right.", "好的。")
    unknown = Text("I found nothing about that.", "没有找到相关的内容。")
    unasked = Text(
        "I cannot look that up at the moment. Please ask again later.", "资料现在查不了，请稍后再问。"
    )
    found = Text("This is what I found:", "找到以下内容：")

    # Which of several flows is meant, whether one is, and whether it is although the message negates it
    which = Text("Which of these do you mean?", "您是指下面哪一项？")
    whether = Text("Do you want “{flow}”?", "您是要办理“{flow}”吗？")
    unwanted = Text(
        "All right, I will not start “{flow}”. If you want it after all, say yes.",
        "好的，不办理“{flow}”。如果要办理，请回答“是”。",
    )
    explain = Text("Could you say more precisely what you need?", "能再说得具体一点吗？")
    further = Text("About “{request}”:", "关于“{request}”：")
    dropped = Text("All right, I will leave it.", "好的，那先不办。")
    nothing = Text("There is nothing in progress to cancel.", "现在没有可以取消的事项。")

    # The state of a run; `{problem}` is `broken` by default, and what the user can do comes after it
    cancelled = Text("“{flow}” is cancelled.", "“{flow}”已取消。")
    failed = Text("“{flow}” did not succeed. {problem}", "“{flow}”没有办成。{problem}")
    broken = Text("Something went wrong on our side.", "我们这边出了问题。")
    try_again = Text("To try it once more, say “try again”.", "要再试，请说“再试一次”。")
    correct = Text(
        "To try it once more, say “try again”; to change something first, say what, as in “make it …”.",
        "要再试，请说“再试一次”；要先改正哪一项，请说“改成……”。",
    )
    working = Text("“{flow}” is in progress; I am still working on it.", "“{flow}”正在办理，还没有结束。")
    paused = Text("“{flow}” is paused.", "“{flow}”已暂停。")

    # Conversations with operators
    passed_on = Text("I have passed that on to my colleague.", "已转告同事。")
    by_operator = Text("{by}: {text}", "{by}：{text}")
    with_operator = Text("{by} is talking with you.", "{by}正在为您服务。")

    # Before a flow or a call, with the values that it is about
    begin = Text(
        "Do I understand correctly that you want “{flow}”, with this?", "您是要按以下内容办理“{flow}”吗？"
    )
    values = Text("{name}: {value}", "{name}：{value}")
    shall = Text("Shall I do this for you?", "要我为您这样办理吗？")
    unapproved = Text("Sorry, that cannot be done at the moment.", "很抱歉，这件事现在暂时办不了。")

    # Answers that are none, too late or invalid; and before a question, what is valid
    again = Text("I did not understand that as an answer.", "这句话没有看懂。")
    late = Text("The time to answer had run out.", "回答的时间已经过了。")
    refused = Text("{name} cannot be {value}: {limit}.", "{name}不能是{value}：{limit}。")
    between = Text("{low} to {high}", "只能是{low}到{high}")
    at_least = Text("{low} or more", "至少是{low}")
    at_most = Text("{high} or less", "最多是{high}")
    not_before = Text("{low} or later", "{low}或以后")
    not_after = Text("{high} or earlier", "{high}或以前")
    today = Text("today", "今天")
    whole = Text("a whole number, {limit}", "{limit}的整数")
    any_whole = Text("a whole number", "整数")
    any_number = Text("a number", "数字")
    wanted = Text("{name}: {form}.", "{name}：{form}。")
    which_text = Text("Please say what it is, as in “{name}: …”.", "请说明是哪一项，如“{name}：……”。")
    long_enough = Text("at least {least} characters", "至少{least}个字")
    unoffered = Text("“{said}” is not one of the choices.", "没有“{said}”这一项。")
    ambiguous = Text("{name}: which of these do you mean: {values}?", "{name}：您指的是哪一个：{values}？")

    # Which of several inputs a correction is for; other flows and questions
    either = Text(
        "Which do you mean: {names}? Please name it, as in “change … to {value}”.",
        "您要改的是哪一项：{names}？请说“把……改成{value}”。",
    )
    not_open = Text(
        "“{flow}” is not in progress here; what is already done cannot be cancelled here.",
        "“{flow}”现在没有在办理；已经办好的，这里取消不了。",
    )
    back = Text("“{flow}” is still open: {question}", "“{flow}”还没有办完：{question}")
    one_by_one = Text("(One of {count} questions.)", "（共{count}个问题，这是其中一个。）")
    options = Text(" ({options})", "（{options}）")
    join = Text(", ", "、")
    space = Text(" ", "")

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

    def ask_which_text(self, asked: Mapping[str, Any]) -> str:
        """Return how to answer where words may be any of several texts; empty if there is only one."""
        texts = {name: part for name, part in properties_of(asked).items() if is_free_text(part)}
        first = next(iter(texts.items()), None)
        return self.which_text.format(name=self._title(*first)) if first and len(texts) > 1 else ""

    def describe_valid_values(self, refused: RejectedValue) -> str:
        """Describe valid values; empty if the schema has no text for people."""
        form = self._form(refused).rstrip("。.")
        if refused.value is None:
            return self.wanted.format(name=refused.title, form=form) if form else ""
        if refused.is_whole and refused.value == int(refused.value):
            form = self._limit(refused)
        return self.refused.format(name=refused.title, value=refused.value, limit=form) if form else ""

    def with_values(self, text: str, values: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
        """Return a question with the values that it is about."""
        properties = properties_of(schema)
        lines = [
            self.values.format(name=self._title(name, properties.get(name, {})), value=format_value(value))
            for name, value in with_titles(schema, values, self.language).items()
        ]
        return "\n".join([text, *lines])

    def confirmation(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return the default confirmation question for a tool call."""
        return self.with_values(self.shall, arguments, tool.args_schema)

    def _title(self, name: str, part: Mapping[str, Any]) -> str:
        title = part.get("title")
        return in_language(title, self.language) if isinstance(title, str) and title else name

    def ask_which_input(self, either: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
        """Return the question which of several inputs a correction is for.

        `either` has the new value of each.
        """
        parts = properties_of(schema)
        names = self.join.join(str(parts.get(name, {}).get("title") or name) for name in either)
        value = next(iter(with_titles(schema, either, self.language).values()))
        return self.either.format(names=names, value=value)

    def _form(self, refused: RejectedValue) -> str:
        """Describe the form of an input, as far as its schema has texts for people."""
        schema = refused.schema
        if not choices_of(schema) and schema.get("type") in ("integer", "number"):
            limit = self._limit(refused)
            if refused.is_whole:
                return self.whole.format(limit=limit) if limit else self.any_whole
            return limit or self.any_number
        if choices := choices_of(schema):
            labels = [choice.label_in(self.language) for choice in choices[:SHOWN]]
            return self.join.join([*labels, "…"] if len(choices) > SHOWN else labels)
        if isinstance(about := schema.get("description"), str) and about:
            return about
        if form := _FORMATS.get(str(schema.get("format"))):
            return form.of(self.language)
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


def format_value(value: object, *, most: int = _MAX_LENGTH) -> str:
    """Format a value for people: a text as it is, else JSON, shortened."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[:most]}…"


def language_of(message: str, *, setting: Literal["auto", "zh", "en"] = "auto", before: str = "") -> Language:
    """Return the language to answer in: as configured, else that of the message.

    That of the conversation before applies to messages in any language: a number, the id of an order, “ok” or
    “no”.
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
