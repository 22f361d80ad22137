"""One field of what was asked, as people say it: its value, its name, and why a value will not do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from loom_core.errors import InvalidInputError, UnreadableTextError
from loom_core.flow.expressions.values import MISSING, Missing
from loom_core.flow.triggers.engines import Clock, compiled
from loom_core.flow.triggers.normal_text import NormalText
from loom_core.flow.understanding.choices import choices_of
from loom_core.flow.understanding.numbers import number_of
from loom_core.flow.understanding.person_names import is_for_person, may_be_person, person_in
from loom_core.flow.understanding.refusal import Refused, Schema
from loom_core.flow.understanding.small_talk import is_past, is_question, yes_or_no
from loom_core.flow.understanding.typed_text import typed
from loom_core.flow.understanding.units import counts_else
from loom_core.knowledge.text.scripts import normalise, simplified
from loom_core.tools.arguments import ToolArguments

__all__ = [
    "Refused",
    "Schema",
    "fits",
    "holds_words",
    "is_free",
    "is_number",
    "label_of",
    "names_of",
    "refused_value",
    "spans_within",
    "takes_anything",
    "texts_within",
    "value_of",
    "without_beginning",
    "without_ending",
]

_ENDS = re.compile(
    r"(?:开始|起)?(?:就好|就行|吧|呢|啊|呀|哦|的话|左右|please|"
    r"[,，]?\s*(?:(?:可以|行|好|成|方便)[吗么不]|行不行|好不好|可不可以|怎么样)[?？]?)?[\s。.!！,，]*$",
    re.IGNORECASE,
)
_BEGINS = re.compile(
    r"^(?:我?(?:想|要|需要|打算|准备)?(?:请|选择|选|填|是|为|因为|由于|从|在)|"
    r"(?:it is|it's|i'?d like|because(?: of)?|on|from|starting(?: on| from)?)\s)\s*",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ANYTHING = re.compile(
    r"问题|疑问|咨询|留言|内容|备注|\b(?:question|message|comment|feedback|note)s?\b", re.I
)


def value_of(text: str, name: str, schema: Schema, *, whole: bool = False) -> Any | Missing:  # noqa: ANN401 - JSON
    """A text as a value that the schema takes; `MISSING` if it says none.

    Args:
        text: what somebody says.
        name: of the input.
        schema: of the input.
        whole: whether the text has to be the value, with little around it; otherwise it may hold it.
    """
    said = text.strip()[label_of(text.strip(), name, schema) :]
    if is_free(schema):
        plain = said.strip().strip("。.!！") or said
        if is_for_person(names_of(name, schema)):
            given = person_in(plain)
            plain = plain[slice(*given)] if given is not None else plain
            if given is None and not may_be_person(plain):
                return MISSING
        return _checked(name, plain, schema)
    written, said = said, simplified(said)
    if is_question(without_ending(said)) or (is_number(schema) and is_past(said)):
        return MISSING
    for words in _shortened(said):
        if schema.get("type") == "boolean" and (yes := yes_or_no(words)) is not None:
            return yes
        value = _typed(words, name, schema)
        if value is not MISSING and (value := _checked(name, value, schema)) is not MISSING:
            return value
    if whole:
        return MISSING
    return _held(written, name, schema) if _pattern(schema) else _only_choice(said, name, schema)


def refused_value(text: str, name: str, schema: Schema) -> Refused | None:
    """The number that a text says and that the schema does not take; None if there is none."""
    said = simplified(text.strip()[label_of(text.strip(), name, schema) :])
    for words in _shortened(said) if is_number(schema) and not is_question(said) else ():
        value = _typed(words, name, {**schema, "type": "number"})
        if isinstance(value, int | float) and not isinstance(value, bool):
            return Refused(name, value, schema) if _checked(name, value, schema) is MISSING else None
    return None


def fits(value: object, name: str, schema: Schema) -> bool:
    """Whether a schema takes a value."""
    return _checked(name, value, schema) is not MISSING


def label_of(text: str, name: str, schema: Schema) -> int:
    """How long the name of an input with what joins it is that a text begins with; 0 if it does not."""
    for called in names_of(name, schema):
        pattern = rf"\s*{re.escape(simplified(called))}\s*(?:[:：=]|是|为|is\b)\s*"
        if match := re.match(pattern, simplified(text), re.IGNORECASE):
            return match.end()
    return 0


def names_of(name: str, schema: Schema) -> list[str]:
    """What an input may be called."""
    return [
        name,
        *(each for key in ("title", "description") if isinstance(each := schema.get(key), str) and each),
    ]


def is_free(schema: Schema) -> bool:
    """Whether any text will do."""
    kinds = schema.get("type", "string")
    plain = kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    has_form = _pattern(schema) or schema.get("format") == "date" or choices_of(schema) or "const" in schema
    return plain and not has_form


def is_number(schema: Schema) -> bool:
    """Whether a number is wanted."""
    return schema.get("type") in {"integer", "number"} and not choices_of(schema)


def takes_anything(name: str, schema: Schema) -> bool:
    """Whether a question or a request may be the answer: 「您的留言」."""
    return is_free(schema) and any(_ANYTHING.search(simplified(each)) for each in names_of(name, schema))


def holds_words(text: str, words: str) -> bool:
    """Whether a text holds words, whole where they are written with spaces between them."""
    found = text.find(words)
    while found >= 0 and words:
        end = found + len(words)
        cut = any(
            0 < at < len(text) and all(each.isascii() and each.isalnum() for each in text[at - 1 : at + 1])
            for at in (found, end)
        )
        if not cut:
            return True
        found = text.find(words, found + 1)
    return False


def without_beginning(text: str) -> str:
    """A text without 「我想请」, "because of" and their like."""
    found = _BEGINS.match(simplified(text))
    return text[found.end() :] if found else text


def without_ending(text: str) -> str:
    """A text without 「吧」, "please" and their like."""
    found = _ENDS.search(simplified(text))
    return text[: found.start()] if found else text


def _shortened(said: str) -> list[str]:
    """A text as it is, and without what may stand around a value."""
    short = without_ending(said)
    return list(dict.fromkeys((said, short, without_beginning(short))))


def _typed(words: str, name: str, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    if is_number(schema) and number_of(words) is None and counts_else(words, names_of(name, schema)):
        return MISSING
    return cast("Any", typed(words, schema))


def _pattern(schema: Schema) -> str:
    pattern = schema.get("pattern")
    return pattern if isinstance(pattern, str) else ""


def _held(text: str, name: str, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    """The one value with a pattern that a text holds."""
    found: list[Any] = []
    last = ""
    for part in texts_within(text, _pattern(schema)):
        value = _checked(name, part, schema)
        if value is not MISSING and (not found or simplified(str(value)).casefold() != last):
            found.append(value)
            last = simplified(str(value)).casefold()
    return found[0] if len(found) == 1 else MISSING


def _only_choice(said: str, name: str, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    form = normalise(said)
    held = [
        (normalise(called), choice.value)
        for choice in choices_of(schema)
        for called in choice.names
        if holds_words(form, normalise(called))
    ]
    longest = [value for word, value in held if not any(word != other and word in other for other, _ in held)]
    same = all(value == longest[0] for value in longest)
    return _checked(name, longest[0], schema) if longest and same else MISSING


def _checked(name: str, value: object, schema: Schema) -> Any | Missing:  # noqa: ANN401 - JSON
    if schema.get("format") == "date" and isinstance(value, str) and not _DATE.fullmatch(value):
        return MISSING
    try:
        arguments = ToolArguments("", {"type": "object", "properties": {name: schema}})
        return arguments.checked({name: value})[name]
    except (InvalidInputError, KeyError):
        return MISSING


def texts_within(text: str, pattern: str) -> Iterator[str]:
    """Parts of a text that a JSON Schema's pattern may fit, each as it is written, then in plain characters.

    A part of a longer word or number is none. Whether the pattern fits is for the schema to check.

    Args:
        text: what somebody says.
        pattern: for a whole value; its ends, `^` and `$`, are left out to search.
    """
    normal = NormalText.of(text)
    for start, end in _places(normal, pattern):
        yield normal.original[slice(*normal.span(start, end))]
        yield normal.text[start:end]


def spans_within(text: str, pattern: str) -> Iterator[tuple[int, int]]:
    """Where in a text such parts stand; see `texts_within`."""
    normal = NormalText.of(text)
    for start, end in _places(normal, pattern):
        yield normal.span(start, end)


def _places(normal: NormalText, pattern: str) -> Iterator[tuple[int, int]]:
    core = pattern.removeprefix("^").removesuffix("$")
    try:
        search = compiled(core)[1]
    except UnreadableTextError:
        return
    for found in search.find(normal.text, Clock()):
        if not _cuts_word(normal.text, found.start) and not _cuts_word(normal.text, found.end):
            yield found.start, found.end


def _cuts_word(text: str, at: int) -> bool:
    around = text[at - 1 : at + 1] if 0 < at < len(text) else ""
    return len(around) > 1 and all(char.isascii() and char.isalnum() for char in around)
