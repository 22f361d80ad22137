"""Flows that are made for operations of an OpenAPI description."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loom_core.errors import ConfigError, NotFoundError
from loom_core.flow.config import parse_flow_file
from loom_core.flow.config.openapi import flows_of_openapi

PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "servers": [{"url": "https://pets.example/{v}/", "variables": {"v": {"default": "v1"}}}],
    "components": {
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X"}},
        "parameters": {"id": {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}},
        "schemas": {
            "Named": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            "Pet": {
                "allOf": [
                    {"$ref": "#/components/schemas/Named"},
                    {
                        "type": "object",
                        "properties": {
                            "id": {"type": "integer", "readOnly": True},
                            "age": {
                                "type": "number",
                                "minimum": 0,
                                "exclusiveMinimum": True,
                                "nullable": True,
                            },
                            "friend": {"$ref": "#/components/schemas/Pet"},
                        },
                    },
                ]
            },
        },
    },
    "paths": {
        "/pets": {
            "get": {
                "operationId": "pets/list",
                "summary": "List all pets",
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer"}, "description": "Most."},
                    {"name": "X-Tenant", "in": "header", "required": True, "schema": {"type": "string"}},
                ],
            },
            "post": {
                "summary": "登记宠物",
                "description": "Adds one.\n\nMuch more.",
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}
                },
            },
        },
        "/pets/{id}": {
            "parameters": [{"$ref": "#/components/parameters/id"}],
            "put": {
                "operationId": "photo",
                "requestBody": {"content": {"image/png": {"schema": {"type": "string"}}}},
            },
            "delete": {"operationId": "pets/remove", "summary": "Remove a pet"},
        },
    },
}


def test_inputs_request_and_a_pattern_come_from_the_operation() -> None:
    made = flows_of_openapi(json.dumps(PETS), ["pets/list", "POST /pets", "pets/remove"])
    listing, adding, removing = made.flows
    assert made.flow_url == "https://pets.example/v1"
    assert [flow.flow_id for flow in made.flows] == ["pets_list", "post_pets", "pets_remove"]
    assert listing.trigger_patterns == [r"(?i)\blist\w*.{0,20}pet\w*"]
    inputs: Any = listing.input_schema
    assert inputs["properties"]["limit"] == {"type": "integer", "description": "Most."}
    assert inputs["required"] == ["X-Tenant"]
    assert listing.endpoint is not None
    assert listing.endpoint.query == {"limit": "{$inputs.limit}"}
    assert listing.endpoint.headers == {"X-Tenant": '{$inputs["X-Tenant"]}'}
    assert (adding.name, adding.description, adding.trigger_patterns) == (
        "登记宠物",
        "Adds one.",
        ["登记宠物"],
    )
    inputs = adding.input_schema
    assert inputs["required"] == ["name"]
    pet = inputs["properties"]
    assert list(pet) == ["name", "age", "friend"]
    assert pet["age"] == {"type": ["number", "null"], "exclusiveMinimum": 0}
    assert adding.endpoint is not None
    assert adding.endpoint.body == {name: f"{{$inputs.{name}}}" for name in pet}
    assert removing.endpoint is not None
    assert (removing.endpoint.method, removing.endpoint.url) == ("DELETE", "/pets/{$inputs.id}")
    file = parse_flow_file(made.text()).file
    assert [flow.flow_id for flow in file.flows] == [flow.flow_id for flow in made.flows]
    assert any("authenticates" in note for note in made.notes)


def test_without_an_operation_they_are_listed_and_a_near_name_is_proposed() -> None:
    with pytest.raises(NotFoundError, match=r"pets/list \(GET /pets\), post /pets"):
        flows_of_openapi(json.dumps(PETS))
    with pytest.raises(NotFoundError, match="Did you mean 'pets/list'"):
        flows_of_openapi(json.dumps(PETS), ["pet/list"])


@pytest.mark.parametrize(
    ("changes", "operation", "told"),
    [
        ({"openapi": "", "swagger": "2.0"}, "photo", "convert a description of Swagger"),
        ({}, "photo", "none of the kinds that flows send: image/png"),
        ({"paths": {"/x": {"$ref": "x.json"}}}, "GET /x", "Bundle the description"),
        ({"paths": {"/x": {"$ref": "#/paths/~1x"}}}, "GET /x", "refers to itself"),
        ({"paths": []}, "GET /x", "should be an object"),
    ],
)
def test_what_flows_cannot_send_is_said(changes: dict[str, Any], operation: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        flows_of_openapi(json.dumps({**PETS, **changes}), [operation])
