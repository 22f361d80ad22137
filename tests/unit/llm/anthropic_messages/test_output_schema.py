from __future__ import annotations

import pytest

from loom_core.llm.anthropic_messages.body import output_schema


def test_limits_are_left_out_and_objects_are_closed():
    schema = {
        "type": "object",
        "title": "实体",
        "properties": {
            "名称": {"type": "string", "minLength": 1, "pattern": "^a", "description": "名字"},
            "when": {"type": ["string", "null"], "format": "date"},
            "how": {"type": "string", "format": "phone"},
            "kind": {"enum": ["a", "b"]},
            "score": {"oneOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
            "tags": {
                "type": "array",
                "items": {"type": "integer", "maximum": 9},
                "minItems": 1,
                "maxItems": 5,
            },
            "pairs": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "inner": {"allOf": [{"type": "object", "properties": {"x": {"const": 1}}}]},
        },
        "required": ["名称"],
    }
    assert output_schema(schema) == {
        "type": "object",
        "title": "实体",
        "properties": {
            "名称": {"type": "string", "description": "名字"},
            "when": {"type": ["string", "null"], "format": "date"},
            "how": {"type": "string"},
            "kind": {"enum": ["a", "b"]},
            "score": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "pairs": {"type": "array", "items": {"type": "string"}},
            "inner": {
                "allOf": [
                    {"type": "object", "properties": {"x": {"const": 1}}, "additionalProperties": False}
                ]
            },
        },
        "required": ["名称"],
        "additionalProperties": False,
    }


def test_references_are_written_out_and_forms_that_contain_themselves_are_cut_off():
    tree = {"type": "object", "properties": {"sub": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
    schema = output_schema({**tree, "$defs": {"tree": tree}})
    assert schema is not None
    assert "$ref" not in str(schema)
    assert schema["properties"]["sub"]["items"]["type"] == "object"
    assert schema["properties"]["sub"]["items"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"any": {}}},
        {"type": "object"},
        {"type": "array", "items": {"type": "string"}},
    ],
)
def test_what_the_api_cannot_say_is_no_schema(schema: dict[str, object]):
    assert output_schema(schema) is None
