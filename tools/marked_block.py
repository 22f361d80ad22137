"""Marked blocks: generated parts of hand-written pages.

Such a part stands between `<!-- made by python -m tools.reference: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re


def with_block(text: str, name: str, block: str) -> str:
    """Replace the block of this name in a page.

    Raises:
        ValueError: the page has no such part, or several.
    """
    pattern = re.compile(
        rf"(<!-- made by python -m tools\.reference: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL
    )
    made, count = pattern.subn(lambda found: f"{found[1]}\n{block.strip(chr(10))}\n\n{found[2]}", text)
    if count != 1:
        raise ValueError(f"The page has {count} parts that are called '{name}', not one.")
    return made
