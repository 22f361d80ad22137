"""The names that a passage of any source holds, read by rules: what it may lead to."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from loom_core.cjk import holds_cjk
from loom_core.knowledge.ingest.extraction.chinese import chinese_mentions
from loom_core.knowledge.ingest.extraction.chinese_lexicon import BEFORE_PERSONS
from loom_core.knowledge.ingest.extraction.choosing import without_overlap
from loom_core.knowledge.ingest.extraction.english import english_mentions
from loom_core.knowledge.text.surface_forms import name_key

if TYPE_CHECKING:
    from loom_core.knowledge.model import KnowledgeItem, Mention

__all__ = ["PassageName", "names_in", "title_key"]

_LEAST = 0.5  # how sure a name is that is taken: a word that only begins a sentence is not
_MOST = 24  # names of a passage; lists of names lead everywhere
_READ = 4000  # characters of a passage
_FOUR = 4  # characters that no Chinese name has which begins with such a word


class PassageName(NamedTuple):
    """A name in a passage.

    Attributes:
        name: as written.
        key: see `name_key`.
        confidence: how sure it is to be one, 0.5 to 1.
    """

    name: str
    key: str
    confidence: float


def names_in(item: KnowledgeItem) -> list[PassageName]:
    """The names that a passage holds and its title does not, each once, in the order of the text."""
    own = title_key(item)
    return [name for name in _names(item.content[:_READ]) if not own or not _overlap(name.key, own)]


def title_key(item: KnowledgeItem) -> str:
    """The `name_key` of the title that a passage stands under; empty where it has none."""
    title: object = item.metadata.get("title")
    return name_key(title) if isinstance(title, str) else ""


def _overlap(one: str, other: str) -> bool:
    """Whether one key is a part of the other, by whole words where there are words."""
    if not holds_cjk(one):
        one, other = f" {one} ", f" {other} "
    return one in other or other in one


@lru_cache(maxsize=256)  # the passages of one question are read for several purposes
def _names(text: str) -> tuple[PassageName, ...]:
    found: dict[str, PassageName] = {}
    for mention in without_overlap([*chinese_mentions(text), *english_mentions(text)]):
        name = _bare(mention)
        key = name_key(name)
        if mention.confidence >= _LEAST and len(key) > 1 and not key.isdigit():
            found.setdefault(key, PassageName(name, key, mention.confidence))
    return tuple(islice(found.values(), _MOST))


def _bare(mention: Mention) -> str:
    """A name without the word before it that the tagger took for its beginning: 由林若曦 is 林若曦."""
    name = mention.name
    if mention.type == "person" and len(name) >= _FOUR and name[0] in BEFORE_PERSONS:
        return name[1:]
    return name
