"""Headers that vendors' SDKs take from environment variables and send to any server."""

from __future__ import annotations

import os

__all__ = ["custom_headers"]


def custom_headers(package: str) -> list[str]:
    """Return the names of the headers that an SDK adds to every request, from its environment variable.

    Args:
        package: the SDK, such as `openai`, whose headers are in `OPENAI_CUSTOM_HEADERS`, a line each.
    """
    lines = os.environ.get(f"{package.upper()}_CUSTOM_HEADERS", "").split("\n")
    return [line.partition(":")[0].strip() for line in lines if ":" in line]
