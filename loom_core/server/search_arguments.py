"""Arguments of the tools that search and read, as a model reads them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from loom_core.knowledge.filters import FILTERS_DESCRIPTION, FILTERS_SCHEMA, filter_mapping
from loom_core.server.results import TOKEN_CAP

__all__ = ["AnswerLimit", "Detail", "Filters", "PassageLimit", "Question", "TextLimit", "TextStart"]

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
    BeforeValidator(filter_mapping),
    WithJsonSchema(dict(FILTERS_SCHEMA)),
    Field(description=FILTERS_DESCRIPTION),
]
"""Conditions on documents. Models are shown a list of them; a mapping is accepted, too."""

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
