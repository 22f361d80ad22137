"""The JSON Schema of `flow.json`, for editors."""

from __future__ import annotations

from typing import Any

from loom_core.flow.config.models import FlowFile

__all__ = ["flow_json_schema"]


def flow_json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a flow file, with a title and a description for each key.

    An editor uses it where the file says so: `"$schema": "./flow.schema.json"`.
    """
    schema = FlowFile.model_json_schema()
    return {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "flow.json"}
