from __future__ import annotations

import logging
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from loom_core.mcp_client.tools.schema_model import schema_model

_TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/节点"}},
    "required": ["tree"],
    "$defs": {
        "节点": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/节点"}},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
}


def _model(properties: dict[str, Any], **keywords: Any) -> type[BaseModel]:
    return schema_model("files:读取", {"type": "object", "properties": properties, **keywords})


def _given_back(model: type[BaseModel], arguments: dict[str, Any]) -> dict[str, Any]:
    return model.model_validate(arguments).model_dump(by_alias=True, exclude_unset=True)


def test_required_optional_default_and_description_are_fields() -> None:
    model = _model(
        {
            "path": {"type": "string", "description": "哪个文件"},
            "limit": {"type": "integer", "default": 5},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "note": {"type": "string"},
        },
        required=["path"],
    )

    values: Any = model.model_validate({"path": "a"})

    assert model.model_fields["path"].is_required()
    assert model.model_fields["path"].description == "哪个文件"
    assert (values.limit, values.tags, values.note) == (5, [], None)
    values.tags.append("x")
    assert _default(model, "tags") == []


def _default(model: type[BaseModel], name: str) -> object:
    return getattr(model.model_validate({"path": "a"}), name)


def test_choices_are_literals() -> None:
    field = _model({"mode": {"enum": ["读", "写"]}}, required=["mode"]).model_fields["mode"]

    assert field.annotation == Literal["读", "写"]


def test_objects_in_objects_and_references_are_models() -> None:
    values: Any = schema_model("t", _TREE).model_validate(
        {"tree": {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}}
    )

    assert values.tree.children[0].children[0].value == 3
    assert type(values.tree) is type(values.tree.children[0])
    assert type(values.tree).__name__ == "节点"


def test_unions_and_null_are_unions() -> None:
    model = _model(
        {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}}, required=["a"]
    )

    assert type(None) in get_args(model.model_fields["a"].annotation)
    assert [_given_back(model, {"a": value})["a"] for value in ("x", 3, None)] == ["x", 3, None]


def test_limits_are_part_of_the_field() -> None:
    model = _model(
        {"a": {"type": "string", "minLength": 2}, "b": {"type": "array", "maxItems": 1}}, required=["a"]
    )

    assert "min_length=2" in str(model.model_fields["a"].metadata)


@pytest.mark.parametrize(
    "name",
    ["a-b", "class", "model_dump", "_private", "copy", "json", "1st", "ａ", "", "self", "a b", "model_x"],
)
def test_any_name_may_be_that_of_an_argument(name: str) -> None:
    model = _model({name: {"type": "integer"}, "field_": {"type": "string"}}, required=[name])

    assert _given_back(model, {name: 3, "field_": "x"}) == {name: 3, "field_": "x"}
    with pytest.raises(ValidationError):
        model.model_validate({name: "x"})


def test_names_that_would_become_the_same_stay_apart() -> None:
    model = _model({"a-b": {"type": "integer"}, "a b": {"type": "string"}, "a_b_": {"type": "boolean"}})

    assert _given_back(model, {"a-b": 1, "a b": "x", "a_b_": True}) == {"a-b": 1, "a b": "x", "a_b_": True}


def test_what_pydantic_cannot_say_the_schema_refuses() -> None:
    model = _model({"a": {}, "b": {}}, oneOf=[{"required": ["a"]}, {"required": ["b"]}])

    with pytest.raises(ValidationError, match="files:读取"):
        model.model_validate({"a": 1, "b": 2})
    assert _given_back(model, {"a": 1}) == {"a": 1}


def test_a_format_refuses_nothing() -> None:
    assert _given_back(_model({"at": {"type": "string", "format": "date-time"}}), {"at": "soon"}) == {
        "at": "soon"
    }


def test_large_numbers_lose_nothing() -> None:
    model = _model({"a": {"type": "number", "minimum": 0}, "b": {"type": "integer"}})

    assert _given_back(model, {"a": 2**80 + 1, "b": 2**80 + 1}) == {"a": 2**80 + 1, "b": 2**80 + 1}


def test_text_is_no_number_and_a_number_no_text() -> None:
    model = _model({"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "boolean"}})

    for wrong in ({"a": "1"}, {"b": 1}, {"c": 1}, {"a": True}):
        with pytest.raises(ValidationError):
            model.model_validate(wrong)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValidationError):
        _model({}).model_validate([])


def test_a_schema_that_makes_no_model_is_checked_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="loom_core.mcp_client.tools.schema_model"):
        model = _model({"a": {"type": "string", "minLength": 10**30}})

    assert "checked by their schema alone" in caplog.text
    assert _given_back(model, {"b": 1}) == {"b": 1}
    with pytest.raises(ValidationError):
        model.model_validate({"a": "short"})


def test_a_schema_of_very_many_objects_makes_only_so_many_classes() -> None:
    model = _model(
        {f"p{n}": {"type": "object", "properties": {"a": {"type": "integer"}}} for n in range(300)}
    )

    assert _given_back(model, {"p299": {"a": 1}}) == {"p299": {"a": 1}}
    with pytest.raises(ValidationError):
        model.model_validate({"p299": {"a": "x"}})


def test_references_of_a_part_with_an_address_of_its_own_are_left_to_the_schema() -> None:
    model = _model(
        {"a": {"$id": "https://example.com/part", "$defs": {"X": {"type": "integer"}}, "$ref": "#/$defs/X"}},
        **{"$defs": {"X": {"type": "string"}}},
    )

    assert _given_back(model, {"a": 5}) == {"a": 5}


_NAMES = st.sampled_from(["a", "b", "class", "路径", "a-b"])
_SCALARS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"type": "string"},
        {"type": "string", "minLength": 1, "maxLength": 2},
        {"type": "string", "format": "uri"},
        {"type": "integer", "minimum": 0, "exclusiveMaximum": 3},
        {"type": "number", "multipleOf": 0.5},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["integer", "null"]},
        {"enum": ["x", 1, None]},
        {"enum": [1.5, {"a": 1}]},
        {"const": "x"},
        {"const": None},
        {"$ref": "#/$defs/List"},
        {"$ref": "#/$defs/Node"},
        {"$ref": "#"},
        {"not": {"type": "string"}},
    ]
)


def _objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"properties": st.dictionaries(_NAMES, inner, max_size=3)},
        optional={
            "type": st.sampled_from(["object", ["object", "null"]]),
            "required": st.lists(_NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "patternProperties": st.just({"^a": {"type": "integer"}}),
        },
    )


_SCHEMAS = st.recursive(
    _SCALARS,
    lambda inner: (
        _objects(inner)
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"minItems": st.just(1)})
        | st.fixed_dictionaries({"prefixItems": st.lists(inner, min_size=1, max_size=2), "items": inner})
        | st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner})
        | st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(
            lambda keyword: st.fixed_dictionaries({keyword: st.lists(inner, min_size=1, max_size=2)})
        )
    ),
    max_leaves=6,
)
_ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from([1.0, 1.5, "", "x", "xyz"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES | st.just("z"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.data())
def test_a_model_takes_what_the_schema_takes_and_gives_it_back_unchanged(data: st.DataObject) -> None:
    schema = data.draw(_objects(_SCHEMAS)) | {
        "type": "object",
        "$defs": {
            "List": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/List"}}]},
            "Node": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/Node"}, "b": {"type": "integer"}},
                "additionalProperties": False,
            },
        },
    }
    model = schema_model("t", schema)
    for _ in range(8):
        arguments = data.draw(st.dictionaries(_NAMES | st.just("z"), _ARGUMENTS, max_size=3))
        if Draft202012Validator(schema).is_valid(arguments):
            assert _given_back(model, arguments) == arguments
        else:
            with pytest.raises(ValidationError):
                model.model_validate(arguments)
