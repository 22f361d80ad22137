"""Untrusted files: open them without link traversal, detect their encoding, parse HTML."""

from __future__ import annotations

__all__: list[str] = []
