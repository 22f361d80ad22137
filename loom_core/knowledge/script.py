"""Traditional and simplified Chinese as one script, character by character."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

__all__ = ["simplified"]


def simplified(text: str) -> str:
    """A text with simplified characters in place of traditional ones, of the same length.

    For comparing only: single characters are mapped whatever they stand in (`乾` becomes `干` in `乾隆`,
    too), so that both sides of a comparison have to be folded. Text without Chinese comes back as it is.
    """
    return text if text.isascii() else text.translate(_table())


class _Table(dict[int, int]):
    """Code points by code points; what a table does not have costs `translate` an exception each time."""

    def __missing__(self, code: int) -> int:
        self[code] = code
        return code


@lru_cache(maxsize=1)
def _table() -> _Table:
    traditional, plain = (
        files("loom_core.knowledge").joinpath("data/simplified.txt").read_text(encoding="utf-8").split()
    )
    return _Table(zip(map(ord, traditional), map(ord, plain), strict=True))
