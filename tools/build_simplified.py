"""Make `loom_core/knowledge/data/simplified.txt`: traditional Chinese characters with their simplified forms.

    uv run --no-project --with opencc==1.4.2 tools/build_simplified.py

Only single characters of the basic plane: names are compared character by character, and a rare wrong pair
does no harm where both sides are folded alike. A second pass follows a form that is itself the traditional
form of another, so that folding twice is the same as once.
"""

from __future__ import annotations

import unicodedata
from itertools import chain
from pathlib import Path

_TARGET = Path(__file__).parent.parent / "loom_core/knowledge/data/simplified.txt"
_BLOCKS = (range(0x3400, 0x4DC0), range(0x4E00, 0xA000))


def main() -> None:
    from opencc import OpenCC

    convert = OpenCC("t2s").convert
    pairs: dict[str, str] = {}
    for char in map(chr, chain(*_BLOCKS)):
        simplified = convert(convert(char))
        plain = len(simplified) == 1 and simplified <= "\uffff"
        if plain and simplified != char and unicodedata.normalize("NFKC", char) == char:
            pairs[char] = simplified
    text = f"{''.join(pairs)}\n{''.join(pairs.values())}\n"
    _TARGET.write_text(text, encoding="utf-8")
    print(f"{len(pairs)} characters")


if __name__ == "__main__":
    main()
