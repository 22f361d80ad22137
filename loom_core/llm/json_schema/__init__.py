"""JSON Schemas for models: as each vendor takes them, and what values have to do with them."""

from __future__ import annotations

from loom_core.llm.json_schema.dialects import adapted
from loom_core.llm.json_schema.strict import strict
from loom_core.llm.json_schema.values import problems, without_nulls

__all__ = ["adapted", "problems", "strict", "without_nulls"]
