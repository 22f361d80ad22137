"""Arazzo export, validated with the JSON Schema that the OpenAPI Initiative has published for 1.0.

The copy is that of Spectral's rules. No package has one of 1.1: a document of 1.1 is checked as one of
1.0, without the time limits of its steps, which are all that Loom writes of what 1.1 has added.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from loom_core.flow.config import export_arazzo, import_arazzo, parse_flow_file
from tests.fixtures.node import unpacked
from tests.unit.flow.config.test_arazzo import API, COUPON, FLOWS, PATIENT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs npm")]

_ROOT = Path(__file__).parents[2]
_EXAMPLE = _ROOT / "examples" / "flow_company" / "flow.json"
_PACKAGE = "@stoplight/spectral-rulesets@1.23.1"


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    found = unpacked(_PACKAGE) / "dist" / "arazzo" / "schemas" / "arazzo" / "v1.0" / "index.json"
    return Draft202012Validator(json.loads(found.read_text(encoding="utf-8")))


def problems(schema: Draft202012Validator, document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in schema.iter_errors(document)]


def of_the_older_version(document: Any) -> Any:
    """A document of 1.1 as one of 1.0."""
    older = json.loads(json.dumps(document))
    older["arazzo"] = "1.0.1"
    for workflow in older["workflows"]:
        for step in workflow["steps"]:
            step.pop("timeout", None)
    return older


@pytest.mark.parametrize(
    "text",
    [FLOWS, _EXAMPLE.read_text(encoding="utf-8"), import_arazzo(COUPON, sources={"pets": API}).text()],
    ids=["flows", "example", "imported"],
)
def test_flows_without_time_limits_are_a_document_as_the_schema_of_1_0_wants_it(
    schema: Draft202012Validator, text: str
) -> None:
    document = export_arazzo(parse_flow_file(text)).document
    if document["arazzo"] == "1.1.0":
        assert "timeout" in json.dumps(document)
        document = of_the_older_version(document)
    assert problems(schema, document) == []


def test_flows_with_time_limits_need_1_1_for_nothing_else(schema: Draft202012Validator) -> None:
    document = export_arazzo(parse_flow_file(PATIENT)).document
    assert any("$.arazzo" in problem for problem in problems(schema, document))
    assert problems(schema, of_the_older_version(document)) == []


def test_the_schema_refuses_what_is_no_step(schema: Draft202012Validator) -> None:
    document = of_the_older_version(export_arazzo(parse_flow_file(FLOWS)).document)
    del document["workflows"][0]["steps"][0]["operationPath"]
    assert problems(schema, document) != []
