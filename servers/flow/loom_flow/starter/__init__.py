"""A flow file to begin with, which works by itself: no model, no API."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["STARTER", "starter_text"]

STARTER = "flow.json"


def starter_text() -> str:
    """What `loom-flow-server init` writes."""
    return files(__name__).joinpath(STARTER).read_text(encoding="utf-8")
