"""The JSON Schema for editors, and the page about the file: both say what the code does."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from loom_core.errors import ConfigError
from loom_core.flow.config import flow_json_schema, parse_flow_file
from loom_core.jsonc import JsonReader

_TOOL = Path(__file__).parents[4] / "tools" / "flow_reference.py"


@pytest.fixture(scope="module")
def tool():
    return runpy.run_path(str(_TOOL))


def _example(page: str) -> str:
    found = re.search(r"```jsonc\n(.*?)```", page, re.DOTALL)
    assert found
    return found[1]


def test_the_reference_is_what_the_code_says(tool):
    written = tool["PAGE"].read_text(encoding="utf-8")
    assert written == tool["page"](), "run: python -m tools.flow_reference"


def test_every_key_that_the_schema_knows_is_in_the_reference(tool):
    schema = flow_json_schema()
    parts = [schema, *schema["$defs"].values()]
    keys = {key for part in parts for key in part.get("properties", {})}
    elsewhere = {"providers.md", "query-config.md"}
    pages = [tool["PAGE"].read_text("utf-8")]
    pages += [(tool["PAGE"].parent / name).read_text("utf-8") for name in elsewhere]
    assert [key for key in sorted(keys) if not any(f"`{key}`" in page for page in pages)] == []


def test_every_key_has_a_description():
    schema = flow_json_schema()
    ours = {name: part for name, part in schema["$defs"].items() if name not in _OTHERS}
    ours[""] = schema
    lacking = [
        f"{name}.{key}"
        for name, part in ours.items()
        for key, each in part.get("properties", {}).items()
        if "description" not in each and key != "kind"
    ]
    assert lacking == []


_OTHERS = {
    "BreakerSettings",
    "HttpSource",
    "LimitSettings",
    "McpSource",
    "PriceSettings",
    "ProviderConfig",
    "RetrySettings",
}


def test_the_example_of_the_reference_is_read_and_fits_the_schema(tool):
    text = _example(tool["page"]())
    assert [flow.flow_id for flow in parse_flow_file(text).file.flows] == ["order_status", "请假"]
    root = JsonReader().read(text)
    assert root
    Draft202012Validator.check_schema(flow_json_schema())
    assert Draft202012Validator(flow_json_schema()).is_valid(root.value)


@pytest.mark.parametrize(
    "file",
    [
        {"flows": [{"flow_id": ""}]},
        {"flows": [{"flow_id": "a", "respnse": ""}]},
        {"flows": [{"flow_id": "a", "priority": "high"}]},
        {"flows": [{"flow_id": "a", "endpoint": {"method": "get"}}]},
        {"flows": [{"flow_id": "a", "steps": [{"stepId": "s", "operation": 1}]}]},
        {"flows": [{"flow_id": "a", "steps": [{"stepId": "s", "onFailure": [{"type": "stop"}]}]}]},
        {"flows": [{"flow_id": "a", "enabled": "yes"}]},
        {"knowledge": {"kind": "local"}},
        {"confidence": 2},
    ],
)
def test_what_the_schema_refuses_is_refused_when_it_is_read(file):
    import json

    assert not Draft202012Validator(flow_json_schema()).is_valid(file)
    with pytest.raises(ConfigError):
        parse_flow_file(json.dumps(file))
