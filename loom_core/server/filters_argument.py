"""The argument `filters` of tools that search, as a model reads it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from loom_core.knowledge.unified import FILTERS_DESCRIPTION

__all__ = ["Filters"]

# What is wrong in them, the knowledge base can say better than a schema with a union: this is for models.
_SCALAR: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "number"}]}
_FILTER_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": _SCALAR},
        {
            "type": "object",
            "properties": dict.fromkeys(("gte", "gt", "lte", "lt", "ne", "contains"), _SCALAR),
            "additionalProperties": False,
        },
    ]
}
Filters = Annotated[
    dict[str, Any] | None,
    WithJsonSchema({"type": "object", "additionalProperties": _FILTER_SCHEMA}),
    Field(description=FILTERS_DESCRIPTION, examples=[{"date": {"gte": "2024-05"}}]),
]
"""Which documents a question is about."""
"""Only passages of documents with these fields; see `KnowledgeBaseProvider.query`."""
