"""Arguments of the tools that search and read, as a model reads them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from loom_core.knowledge.unified import FILTERS_DESCRIPTION
from loom_core.server.results import TOKEN_CAP

__all__ = ["AnswerLimit", "Detail", "Filters", "PassageLimit", "Question", "TextLimit", "TextStart"]

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
_MAX_TEXT = TOKEN_CAP - 1000  # tokens of a document; its title, address and where to go on have the rest

Question = Annotated[
    str,
    Field(
        description="The question, or keywords.",
        min_length=1,
        examples=["Who approved the Q3 budget?", "谁批准了三季度预算？"],
    ),
]
"""What is searched for."""

Filters = Annotated[
    dict[str, Any] | None,
    WithJsonSchema({"type": "object", "additionalProperties": _FILTER_SCHEMA}),
    Field(description=FILTERS_DESCRIPTION, examples=[{"date": {"gte": "2024-05"}}]),
]
"""Only passages of documents with these fields; see `KnowledgeBaseProvider.query`."""

PassageLimit = Annotated[int, Field(description="How many passages.", ge=1, le=50)]
"""How many passages are answered at the most."""

Detail = Annotated[
    Literal["concise", "detailed"],
    Field(description="`detailed` adds scores and why each passage was found."),
]
"""How much is told of each passage."""

AnswerLimit = Annotated[int, Field(description="Limit of the answer's text.", ge=200, le=TOKEN_CAP)]
"""Tokens of all passages together, with what is told of them."""

TextStart = Annotated[
    int | None,
    Field(description="Character to read from; left out, a passage is shown amid its context.", ge=0),
]
"""Where a document is read from."""

TextLimit = Annotated[int, Field(description="Limit of the text.", ge=100, le=_MAX_TEXT)]
"""Tokens of what is read of a document."""
