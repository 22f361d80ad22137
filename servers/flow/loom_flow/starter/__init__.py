"""Starter flow file, which needs no model and no API."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["STARTER", "starter_text"]

STARTER = "flow.json"


def starter_text() -> str:
    """Return the file that `loom-flow-server init` writes."""
    return files(__name__).joinpath(STARTER).read_text(encoding="utf-8")
