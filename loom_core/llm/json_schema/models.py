"""JSON Schemas of Pydantic models, without the titles that Pydantic derives from names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

__all__ = ["model_schema"]


class _UntitledSchema(GenerateJsonSchema):
    """Generator without derived titles."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        if found.get("title") == schema["cls"].__name__:
            del found["title"]
        return found


def model_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model's values, as a language model gets it.

    A title that repeats the name of a field or a class says nothing, and costs about a fifth of the tokens.
    Titles that the model's author has given stay.
    """
    return model.model_json_schema(schema_generator=_UntitledSchema)
