"""Types of names that follow from the rest of their passage: its title, what it defines, full names."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from loom_core.knowledge.ingest.extraction.chinese_types import type_of_chinese_noun, type_of_chinese_subject
from loom_core.knowledge.ingest.extraction.english import english_defined_type
from loom_core.knowledge.ingest.extraction.english_types import type_of_noun_phrase
from loom_core.knowledge.model import Mention

if TYPE_CHECKING:
    from loom_core.knowledge.model import Chunk, Relation

__all__ = ["SubjectTypes", "subject_types", "with_title", "with_types"]

_NEAR = 8  # characters of a text before its title: a quotation mark, an article

SubjectTypes: TypeAlias = "dict[str, str]"
"""Names whose type a passage tells by its title or its first sentence."""


def subject_types(chunk: Chunk, definition: Relation | None) -> SubjectTypes:
    """What a passage tells of what it is about.

    Args:
        chunk: the passage.
        definition: the "X is a Y" with which it begins.
    """
    found: SubjectTypes = {}
    title = _bare(chunk.title)
    if title != chunk.title:
        found[title] = _type_of(chunk.title[len(title) :].strip(" ()（）"))
    if definition is not None:
        subject, what = definition.subject, definition.object
        type_ = english_defined_type(chunk.text, definition) if what.isascii() else _type_of(what)
        found[subject] = found["The " + subject] = type_
        if title and title not in found and title.rpartition(" ")[2] in subject.split():
            found[title] = type_  # Arnold Alois Schwarzenegger, under the title Arnold Schwarzenegger
    if title and not title.isascii() and found.get(title, "thing") == "thing":
        found[title] = type_of_chinese_subject(title, chunk.text)
    return {name: type_ for name, type_ in found.items() if type_ != "thing"}


def with_types(mentions: list[Mention], known: SubjectTypes) -> list[Mention]:
    """The mentions of a passage, some with other types: those that it tells, and those of full names.

    Args:
        mentions: by place.
        known: what the passage tells.
    """
    persons = {
        name.rpartition(" ")[2]
        for name, _, _, type_, _, _ in mentions
        if type_ == "person" and " " in name and " of " not in name
    }
    if not known and not persons:
        return mentions
    return [
        _typed(mention, known) if mention[0] in known or mention[0] in persons else mention
        for mention in mentions
    ]


def with_title(mentions: list[Mention], chunk: Chunk, known: SubjectTypes) -> list[Mention]:
    """The mentions, with the title of the passage where its text begins with it and it has a type.

    Known names are looked for in all texts anyway, but do not get a type by that.
    """
    title = _bare(chunk.title)
    start = chunk.text.find(title, 0, len(title) + _NEAR) if title in known else -1
    if start < 0 or any(mention.name == title for mention in mentions):
        return mentions
    made = Mention(title, start, start + len(title), known[title], "definition", 1.0)
    return sorted([*mentions, made], key=lambda mention: mention.start)


def _typed(mention: Mention, known: SubjectTypes) -> Mention:
    # Schwarzenegger, in a passage that names Arnold Schwarzenegger, is a person.
    type_ = known.get(mention.name, "person" if mention.type == "thing" else mention.type)
    return mention if mention.type == type_ else mention._replace(type=type_)


def _bare(title: str) -> str:
    """A title without what stands in parentheses at its end: `Mercury (planet)`."""
    if not title.endswith((")", "）")):
        return title
    return title[: max(title.rfind("("), title.rfind("（"), 0)].rstrip()


def _type_of(noun: str) -> str:
    return type_of_noun_phrase(noun) if noun.isascii() else type_of_chinese_noun(noun)
