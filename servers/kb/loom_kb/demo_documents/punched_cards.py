r"""Punched cards for a Jacquard machine, and the cloth that they weave.

A card stands for one pick, that is for one row of the cloth. A hole (`o`) lifts a warp thread, so that the
warp shows in that place (`#`); without a hole (`.`) the thread stays down and the weft shows (space).

>>> cards = punch([" # ", "# #"])
>>> print(*cards, sep="\n")
.o.
o.o
>>> print(*weave(cards, repeats=2), sep="\n")
 #  #
# ## #
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["punch", "twill", "weave"]

HOLE, BLANK = "o", "."
WARP, WEFT = "#", " "


def punch(drawing: Iterable[str]) -> list[str]:
    """Make one card for each row of a drawing: a hole wherever there is something drawn."""
    return ["".join(BLANK if point == WEFT else HOLE for point in row) for row in drawing]


def weave(cards: Iterable[str], *, repeats: int = 1) -> Iterator[str]:
    """Weave the rows of the cloth, each card lifting the same threads in every repeat of the figure."""
    for card in cards:
        yield "".join(WARP if place == HOLE else WEFT for place in card * repeats).rstrip()


def twill(*, over: int = 2, under: int = 2) -> list[str]:
    r"""Cards for a twill, whose diagonal comes from moving every row on by one thread.

    >>> print(*twill(), sep="\n")
    oo..
    .oo.
    ..oo
    o..o
    """
    row = HOLE * over + BLANK * under
    return [row[-shift:] + row[:-shift] for shift in range(len(row))]
