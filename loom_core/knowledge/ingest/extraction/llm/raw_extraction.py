"""What a language model says it found in passages, before anything of it is believed."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MOST_SAID", "Said", "SaidEntity", "SaidRelation"]

MOST_SAID = 5000
"""More things than any answer holds that is no endless loop."""

_LONGEST = 300  # characters of a name, a type or a predicate: longer ones are sentences


class SaidEntity(NamedTuple):
    """An entity, as the model wrote it.

    Attributes:
        name: its name.
        type: its type, or empty.
        passage: number of the passage that names it, or None where the model does not say.
    """

    name: str
    type: str
    passage: int | None

    @property
    def is_usable(self) -> bool:
        """Whether it has a name, and nothing is too long to be what it is meant to be."""
        return bool(self.name.strip()) and max(len(self.name), len(self.type)) <= _LONGEST


class SaidRelation(NamedTuple):
    """A relation between two entities, as the model wrote it.

    Attributes:
        subject: name of the one.
        predicate: how they are connected, or empty.
        object: name of the other.
        passage: number of the passage that states it, or None where the model does not say.
    """

    subject: str
    predicate: str
    object: str
    passage: int | None

    @property
    def is_usable(self) -> bool:
        """Whether it has both ends, and nothing is too long to be what it is meant to be."""
        texts = (self.subject, self.predicate, self.object)
        return bool(self.subject.strip() and self.object.strip()) and max(map(len, texts)) <= _LONGEST


class Said(NamedTuple):
    """All that an answer says.

    Attributes:
        entities: nothing twice, in the order of the answer.
        relations: likewise.
        passages: of which passages it says something, and be it that they name nothing; None stands for
            all of them, where the model does not say which.
    """

    entities: tuple[SaidEntity, ...] = ()
    relations: tuple[SaidRelation, ...] = ()
    passages: frozenset[int | None] = frozenset()
