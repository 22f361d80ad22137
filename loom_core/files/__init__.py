"""Files of unknown origin: opened where they are said to be, read in whatever encoding they are."""

from __future__ import annotations

__all__: list[str] = []
