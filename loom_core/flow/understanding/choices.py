"""The choices of an input and their titles: `enum`, or `oneOf` with `const` and `title`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loom_core.flow.understanding.formats import format_in_words
from loom_core.flow.understanding.language import in_language

if TYPE_CHECKING:
    from loom_core.flow.understanding.language import Language

__all__ = ["ValueChoice", "choices_of", "with_titles"]

_BETWEEN = " / "


@dataclass(frozen=True, slots=True)
class ValueChoice:
    """A choice.

    Attributes:
        value: value for the API.
        title: its title, maybe bilingual (`牙科 / Dental`); empty for the value itself.
    """

    value: Any
    title: str = ""

    @property
    def names(self) -> list[str]:
        """Names of the choice; none for a value that is no text and has no title."""
        parts = [self.title, *self.title.split(_BETWEEN)] if self.title else []
        named = [*parts, *([self.value] if isinstance(self.value, str) else [])]
        return list(dict.fromkeys(each.strip() for each in named if each.strip()))

    def label_in(self, language: Language) -> str:
        """Return the label of the choice in a language."""
        return in_language(self.title, language) if self.title else str(self.value)


def choices_of(schema: Mapping[str, Any]) -> list[ValueChoice]:
    """Return the choices of an input, in order; empty if it has none."""
    if isinstance(listed := schema.get("enum"), list):
        return [ValueChoice(each) for each in cast("list[object]", listed)]
    forms: object = schema.get("oneOf", schema.get("anyOf"))
    if not isinstance(forms, list) or not forms:
        return []
    found: list[ValueChoice] = []
    for form in cast("list[object]", forms):
        if not isinstance(form, Mapping) or "const" not in form:
            return []
        part = cast("Mapping[str, Any]", form)
        title = part.get("title")
        found.append(ValueChoice(part["const"], title if isinstance(title, str) else ""))
    return found


def with_titles(schema: Mapping[str, Any], inputs: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """Replace choices in inputs by their titles, and dates and durations by words, for people."""
    named: object = schema.get("properties")
    parts: Mapping[str, object] = cast("Mapping[str, object]", named) if isinstance(named, Mapping) else {}
    told = dict(inputs)
    for name, value in inputs.items():
        if not isinstance(part := parts.get(name), Mapping):
            continue
        schema = cast("Mapping[str, Any]", part)
        told[name] = format_in_words(value, schema, language)
        for choice in choices_of(schema):
            if choice.title and choice.value == value:
                told[name] = choice.label_in(language)
    return told
