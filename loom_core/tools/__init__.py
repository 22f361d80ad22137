"""What models can call: the interface of every tool, and a tool that finds tools."""

from __future__ import annotations

__all__: list[str] = []
