"""Token estimate of a text."""

from __future__ import annotations

import re

from loom_core.cjk import CJK

__all__ = ["estimate_tokens"]

_CJK_RUN = re.compile(f"[{CJK}]+")


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text has for a multilingual embedder or a language model.

    Two thirds of a token for a CJK character, a quarter for any other (both rounded up together):
    within 15 % of XLM-R's tokeniser on ordinary English and Chinese prose.
    """
    if text.isascii():
        return -(-len(text) // 4)
    cjk = sum(map(len, _CJK_RUN.findall(text)))
    return -(-(8 * cjk + 3 * (len(text) - cjk)) // 12)
