"""Trigger patterns: those of all flows are matched at once, in linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.triggers.matcher import TriggerMatch, TriggerMatcher, check_pattern


__all__ = ["TriggerMatch", "TriggerMatcher", "check_pattern"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
