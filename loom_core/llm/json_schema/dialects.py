"""A schema in the part of JSON Schema that a vendor takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.gemini import for_gemini
from loom_core.llm.json_schema.references import inlined

if TYPE_CHECKING:
    from loom_core.llm.spec import SchemaDialect

__all__ = ["adapted"]


def adapted(schema: Mapping[str, Any], dialect: SchemaDialect, *, most: int = 5000) -> dict[str, Any]:
    """A schema in the part of JSON Schema that a vendor takes; a copy in any case.

    Every value of the schema is one of the result, too. The other way round it holds for `inline`, unless
    something had to be cut off; for `gemini` the answer has to be checked (`values.problems`).

    Args:
        schema: a JSON Schema; what it refers to has to be in it.
        dialect: `full` takes everything. `inline` takes no `$ref`: what is referred to is put in its place; a
            form that contains itself is cut off where it begins again, by its type and a description.
            `gemini` takes that, and only the keywords of Gemini's own `Schema` type.
        most: after so many parts, references are cut off like those that contain themselves: a few lines can
            refer to each other millions of times.

    Raises:
        InvalidInputError: the schema is nested too deeply.
    """
    try:
        if dialect == "full":
            return json.loads(json.dumps(schema))
        whole = inlined(schema, most=most)
        return for_gemini(whole) if dialect == "gemini" else whole
    except RecursionError:
        raise InvalidInputError("The schema is nested too deeply.", advice="Use a flatter one.") from None
