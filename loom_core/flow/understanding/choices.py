"""The values that an input is one of, and their titles: `enum`, or `oneOf` with `const` and `title`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loom_core.flow.understanding.language import in_language

if TYPE_CHECKING:
    from loom_core.flow.understanding.language import Language

__all__ = ["ValueChoice", "choices_of", "with_titles"]

_BETWEEN = " / "


@dataclass(frozen=True, slots=True)
class ValueChoice:
    """One of them.

    Attributes:
        value: what the API is given.
        title: what people call it, maybe in both languages (`牙科 / Dental`); empty for the value itself.
    """

    value: Any
    title: str = ""

    @property
    def names(self) -> list[str]:
        """All that it may be called; nothing for a value that is no text and has no title."""
        parts = [self.title, *self.title.split(_BETWEEN)] if self.title else []
        named = [*parts, *([self.value] if isinstance(self.value, str) else [])]
        return list(dict.fromkeys(each.strip() for each in named if each.strip()))

    def label_in(self, language: Language) -> str:
        """What users are told of it."""
        return in_language(self.title, language) if self.title else str(self.value)


def choices_of(schema: Mapping[str, Any]) -> list[ValueChoice]:
    """The values of which an input is one, in order; empty where it may be anything else."""
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
    """Inputs as users are told of them: choices by their titles."""
    named: object = schema.get("properties")
    parts: Mapping[str, object] = cast("Mapping[str, object]", named) if isinstance(named, Mapping) else {}
    told = dict(inputs)
    for name, value in inputs.items():
        part = parts.get(name)
        for choice in choices_of(cast("Mapping[str, Any]", part)) if isinstance(part, Mapping) else []:
            if choice.title and choice.value == value:
                told[name] = choice.label_in(language)
    return told
