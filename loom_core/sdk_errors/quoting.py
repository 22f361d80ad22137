"""A vendor's words, as they may be shown: short, on one line, and without keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

__all__ = ["quoted"]

_LONGEST_WORDS = 300
_SHORTEST_KEY = 8

_SECRETS = re.compile(
    r"\bBearer\s+[^\s\"',;]+"
    r"|\b(?:sk|pk|rk|ak|gsk|xai|nvapi|hf)[-_][^\s\"',;)]{4,}"
    r"|\bAIza[\w-]{10,}"
    r"|(?<=[:=])\s*[\"']?(?=[\w./+-]*\d)[\w./+-]{20,}"
    r"|\b(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[\w-]{32,}(?:\.[\w-]+)*",
    re.IGNORECASE | re.ASCII,
)
"""What looks like a key: with a vendor's beginning, behind `Bearer`, or long and of letters and digits."""


def quoted(words: str, error: Exception) -> str:
    """Words on one line, shortened, without keys: neither the one that was sent, nor what looks like one."""
    for key in _sent_keys(error):
        words = words.replace(key, "…")
    line = " ".join(_SECRETS.sub("…", words).split())
    line = "".join(letter for letter in line if letter.isprintable())
    return line if len(line) <= _LONGEST_WORDS else f"{line[: _LONGEST_WORDS - 1]}…"


def _sent_keys(error: Exception) -> Iterator[str]:
    headers = cast("Mapping[str, Any]", getattr(_request(error), "headers", {}))
    for name in ("authorization", "x-api-key", "api-key", "x-goog-api-key"):
        key = str(headers.get(name, "")).removeprefix("Bearer ").strip()
        if len(key) >= _SHORTEST_KEY:
            yield key


def _request(error: Exception) -> object:
    try:
        return getattr(error, "request", None)
    except RuntimeError:  # httpx2 raises it where an error has no request
        return None
