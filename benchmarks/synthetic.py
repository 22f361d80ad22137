"""More passages than the data sets have, made from theirs, so that speed can be measured at scale.

Vectors and quality mean nothing on such text, but the work of a question does: sentences are real, names
are shared between passages as they are in the originals, and new names and words keep coming as the corpus
grows, each with a passage of its own that others mention.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.model import DocumentDraft

__all__ = ["corpus_of"]

_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_SYLLABLES = "bar den fol gra hin jor kel lum mar nor pel quin ros sel tor ul ven wex yar zim".split()
_MENTIONED = 2  # passages of the same round that a new passage names


def corpus_of(originals: Sequence[DocumentDraft]) -> Iterator[DocumentDraft]:
    """The originals in a fixed random order, then variants of them without end.

    A variant has the sentences of its original mixed with those of another, its own new title instead of
    the original's, and mentions of other new titles.
    """
    documents = random.Random(0).sample(originals, len(originals))
    yield from documents
    yield from _variants(documents)


def _variants(originals: Sequence[DocumentDraft]) -> Iterator[DocumentDraft]:
    number = 0
    while True:
        number += 1
        dice = random.Random(number)
        titles = [_new_title(document, dice) for document in originals]
        for place, document in enumerate(originals):
            other = originals[dice.randrange(len(originals))]
            mentions = [titles[dice.randrange(len(titles))] for _ in range(_MENTIONED)]
            yield replace(
                document,
                uri=f"{document.uri}/{number}",
                title=titles[place],
                title_source="given",
                text=_mixed(document, other, titles[place], mentions, dice),
            )


def _new_title(document: DocumentDraft, dice: random.Random) -> str:
    """A name no one has, in the manner of the original's: its last words, and a new one before."""
    coined = "".join(dice.choices(_SYLLABLES, k=3)).capitalize()
    return f"{coined} {' '.join(document.title.split()[-2:])}".strip()


def _mixed(
    document: DocumentDraft, other: DocumentDraft, title: str, mentions: Sequence[str], dice: random.Random
) -> str:
    own, foreign = _SENTENCE.split(document.text), _SENTENCE.split(other.text)
    kept = [dice.choice((sentence, dice.choice(foreign))) for sentence in own]
    if document.title:
        kept = [sentence.replace(document.title, title) for sentence in kept]
    kept += [f"{title} is known from {name}." for name in mentions]
    return " ".join(kept)
