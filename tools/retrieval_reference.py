"""Writes the tables of docs/explanation/retrieval.md (`python -m tools.reference retrieval`).

They are those of benchmarks/RESULTS.md, so that no figure stands in two places.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.marked_block import with_block

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "explanation" / "retrieval.md"
_RESULTS = _ROOT / "benchmarks" / "RESULTS.md"

_TABLES = {"quality": "## Retrieval", "parts": "### What each part brings"}
"""The heading in RESULTS.md whose first table each part is."""


def page() -> str:
    """Return the whole page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, heading in _TABLES.items():
        text = with_block(text, name, first_table(heading))
    return text


def first_table(heading: str) -> str:
    """Return the first table below a heading of RESULTS.md.

    Raises:
        ValueError: there is no such heading, or no table below it.
    """
    _, found, below = _RESULTS.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    section = re.split(r"^##", below, maxsplit=1, flags=re.MULTILINE)[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    if not found or not table:
        raise ValueError(f"RESULTS.md has no table below '{heading}'.")
    return table[0]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
