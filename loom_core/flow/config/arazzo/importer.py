"""Import of flows from an Arazzo document (1.0 or 1.1): its workflows of HTTP requests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from loom_core.config_file import plain_reason
from loom_core.flow.config.arazzo.sources import JsonPart, OpenApiSources, Operation, parse_document
from loom_core.flow.config.models import FlowConfig
from loom_core.llm.json_schema.values import readable_path

__all__ = [
    "EXTENSION",
    "OPTIONAL",
    "REQUEST_EXTENSIONS",
    "RESPONSE",
    "SUCCESS",
    "ImportedFlows",
    "import_arazzo",
]

EXTENSION = "x-loom"
"""Extension key of an exported workflow, for everything that Arazzo cannot express."""

SUCCESS = "$statusCode >= 200 && $statusCode < 300"
"""Success criterion of a request that has none; Arazzo has no such default."""

REQUEST_EXTENSIONS: Mapping[str, type] = {"idempotent": bool, "failure": str, "retries": int}
"""Fields of a request that Arazzo cannot express; a step has them in `EXTENSION`."""

OPTIONAL = "optional"
"""Key in `EXTENSION` for optional outputs of a step; `RESPONSE` is the key of an end's text for the user."""

RESPONSE = "response"

_VERSION = re.compile(r"1\.[01]\.\d+(-.+)?")
_EXPRESSION = re.compile(r"\$(?:inputs|steps|response|statusCode)\b[^\s{}]*")
_INPUTS = "#/components/inputs/"
_RESULT = ("result", "$response.body")  # every request has this output
_MAX_DEPTH = 32
_MAX_PARTS = 10_000  # of the schema of a workflow's inputs: references can expand it
_ASYNCHRONOUS = ("channelPath", "action", "correlationId")
_EXTENSION_FIELDS = frozenset(
    "name trigger_patterns priority ambiguous confirm response as_tool tool_name examples hidden".split()
)


@dataclass(frozen=True, slots=True)
class ImportedFlows:
    """Result of importing an Arazzo document.

    Attributes:
        flows: its workflows.
        flow_url: the base of their paths, if the document gives one; else empty.
        notes: what remains to be done by hand.
    """

    flows: tuple[FlowConfig, ...]
    flow_url: str = ""
    notes: tuple[str, ...] = field(default=())

    def text(self) -> str:
        """Return the flows as the text of a flow file."""
        flows = [flow.model_dump(mode="json", by_alias=True, exclude_defaults=True) for flow in self.flows]
        file: dict[str, Any] = {"flow_url": self.flow_url} if self.flow_url else {}
        return json.dumps({**file, "flows": flows}, ensure_ascii=False, indent=2) + "\n"


def import_arazzo(
    text: str, *, name: str = "arazzo", sources: Mapping[str, str] | None = None
) -> ImportedFlows:
    """Convert the workflows of a document to flows. Nothing is fetched.

    Args:
        text: JSON, or YAML (needs the extra `install`).
        name: name of the document in messages.
        sources: texts of the OpenAPI descriptions that it names, by name. Without them, only operations given
            by path can be read, and their servers are unknown.

    Raises:
        ConfigError: the document is invalid or uses an unsupported feature; the message says where.
    """
    root = JsonPart(parse_document(text, name=name), name=name)
    if not _VERSION.fullmatch(version := root.text("arazzo", required=True)):
        raise root.get("arazzo").error(f"is {version[:20]!r}.", "Loom reads Arazzo 1.0 and 1.1.")
    return _Import(root, OpenApiSources(root, sources or {})).flows()


class _Import:
    """Reader of one document."""

    def __init__(self, root: JsonPart, sources: OpenApiSources) -> None:
        self._root = root
        self._sources = sources
        self._notes: dict[str, None] = {}
        self._parts = 0  # of the schema that is being resolved

    def flows(self) -> ImportedFlows:
        flows = tuple(self._flow(each) for each in self._root.get("workflows").items())
        if not self._sources.flow_url and any(step.operation for flow in flows for step in flow.steps):
            self._notes["Set `flow_url`: the base address for the paths of the API."] = None
        return ImportedFlows(flows, self._sources.flow_url, tuple(self._notes))

    def _flow(self, part: JsonPart) -> FlowConfig:
        if part.get("dependsOn").value:
            raise part.get("dependsOn").error("is not read.", "Make the other workflow the first step.")
        extra = {key: each for key, each in part.get(EXTENSION).members().items() if key in _EXTENSION_FIELDS}
        flow_id = part.text("workflowId", required=True)
        if not extra.get("trigger_patterns"):
            self._notes[f"{flow_id}: write `trigger_patterns`, or let a model choose it."] = None
        self._parts = 0
        written: dict[str, Any] = {
            "flow_id": flow_id,
            "name": part.text("summary"),
            "description": part.text("description"),
            "input_schema": self._resolve_reference(part.get("inputs"), 0),
            "steps": [self._step(each, part) for each in part.get("steps").items()],
            "outputs": self._outputs(part),
            **extra,
        }
        if not written["steps"]:
            raise part.get("steps").error("is empty.")
        try:
            return FlowConfig.model_validate(written)
        except ValidationError as error:
            detail = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise part.error(f"({readable_path(detail['loc'])}): {plain_reason(detail)}.") from None

    def _step(self, part: JsonPart, workflow: JsonPart) -> dict[str, Any]:
        for key in _ASYNCHRONOUS:
            if part.get(key).value is not None:
                raise part.get(key).error("belongs to messages, which Loom's flows do not support.")
        criteria = [self._criterion(each) for each in part.get("successCriteria").items()]
        step: dict[str, Any] = {
            "stepId": part.text("stepId", required=True),
            "description": part.text("description"),
            "successCriteria": [each for each in criteria if each["condition"] != SUCCESS],
            "onSuccess": self._actions(part, workflow, "onSuccess", "successActions"),
            "onFailure": self._actions(part, workflow, "onFailure", "failureActions"),
            "outputs": self._outputs(part),
        }
        optional = part.get(EXTENSION).members().get(OPTIONAL)
        for name in step["outputs"] if isinstance(optional, list) else ():
            step["outputs"][name] += "?" if name in optional else ""
        if part.get("timeout").value is not None:
            step["timeout_seconds"] = part.number("timeout", 0) / 1000  # in milliseconds
        parameters = self._parameters(part, workflow)
        if other := part.text("workflowId"):
            if other.startswith("$"):
                raise part.get("workflowId").error("is in another document.", "Import that, too.")
            step["workflowId"] = other
            step["parameters"] = {name: value for (_, name), value in parameters.items()}
            return step
        step["outputs"] = {key: each for key, each in step["outputs"].items() if (key, each) != _RESULT}
        operation = self._sources.operation(part)
        step["operation"] = self._operation(operation, parameters, part)
        kept = part.get(EXTENSION).members()
        step["operation"] |= {
            key: kept[key] for key, kind in REQUEST_EXTENSIONS.items() if isinstance(kept.get(key), kind)
        }
        return step

    def _operation(
        self, operation: Operation, parameters: Mapping[tuple[str, str], Any], part: JsonPart
    ) -> dict[str, Any]:
        path, query, headers = operation.path, dict[str, Any](), dict[str, str]()
        for (where, name), value in parameters.items():
            if where == "path":
                path = path.replace(f"{{{name}}}", str(value))
            elif where == "header":
                headers[name] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            else:
                query[name] = value
        if unfilled := re.search(r"\{(?!\$)[^{}]*\}", path):
            raise part.error(f"has no parameter for {unfilled[0]} in its path.")
        written: dict[str, Any] = {"method": operation.method, "url": path, "query": query}
        if headers:
            written["headers"] = headers
        body = part.get("requestBody")
        if body.value is not None:
            written |= self._body(body)
        return written

    def _body(self, part: JsonPart) -> dict[str, Any]:
        if part.get("replacements").value:
            raise part.get("replacements").error("is not read.", "Write the values into the payload.")
        kind = part.text("contentType") or "application/json"
        payload = part.get("payload").value
        if kind == "application/json" and isinstance(payload, str):
            with suppress(ValueError, RecursionError):  # an expression or a text
                payload = json.loads(payload)
        return {"content_type": kind, "body": self._fill_values(part.at("payload", payload))}

    def _parameters(self, part: JsonPart, workflow: JsonPart) -> dict[tuple[str, str], Any]:
        """Return values by place and name; a step's values override those of its workflow."""
        found: dict[tuple[str, str], Any] = {}
        for written in (*workflow.get("parameters").items(), *part.get("parameters").items()):
            each = self._component(written, "parameters")
            where = each.text("in")
            if where not in {"", "path", "query", "header"}:
                raise written.error(f"is in {where!r}, which Loom's flows do not support.")
            value = written.get("value") if "value" in written.members() else each.get("value")
            found[where, each.text("name", required=True)] = self._fill_values(value)
        return found

    def _component(self, part: JsonPart, kind: str) -> JsonPart:
        """Resolve a reference to `$components.<kind>.<name>`; return any other part unchanged."""
        reference = part.text("reference")
        if not reference:
            return part
        name = reference.removeprefix(f"$components.{kind}.")
        there = self._root.get("components").get(kind).members()
        if name not in there:
            raise part.get("reference").error(f"refers to {reference[:80]!r}, which is not there.")
        return part.at(reference, there[name])

    def _actions(self, part: JsonPart, workflow: JsonPart, key: str, shared_key: str) -> list[dict[str, Any]]:
        own = [self._component(each, shared_key) for each in part.get(key).items()]
        names = {each.text("name") for each in own}
        shared = [self._component(each, shared_key) for each in workflow.get(shared_key).items()]
        every = [*own, *(each for each in shared if each.text("name") not in names)]
        return [self._action(each) for each in every if each.number("retryLimit", 1) > 0]

    def _action(self, part: JsonPart) -> dict[str, Any]:
        if part.text("workflowId"):
            raise part.get("workflowId").error("is not followed.", "Go to a step that runs the workflow.")
        action: dict[str, Any] = {
            "name": part.text("name"),
            "type": part.text("type", required=True),
            "stepId": part.text("stepId"),
            "criteria": [self._criterion(each) for each in part.get("criteria").items()],
        }
        if action["type"] == "retry":
            action["retryAfter"] = float(part.number("retryAfter", 1.0))
            action["retryLimit"] = int(part.number("retryLimit", 1))
        if isinstance(said := part.get(EXTENSION).members().get(RESPONSE), str):
            action["response"] = said
        return action

    def _criterion(self, part: JsonPart) -> dict[str, Any]:
        kind = part.get("type")
        said = kind.text("type") if isinstance(kind.value, Mapping) else part.text("type")
        if said not in {"", "simple", "regex", "jsonpath"}:
            raise kind.error(f"is {said[:20]!r}, which Loom's flows do not support.")
        return {
            "condition": part.text("condition", required=True),
            "type": said or "simple",
            "context": part.text("context"),
        }

    def _outputs(self, part: JsonPart) -> dict[str, str]:
        outputs = part.get("outputs")
        return {name: outputs.text(name, required=True) for name in outputs.members()}

    def _fill_values(self, part: JsonPart, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
        """Convert a value to a template: in Arazzo, an expression that is a whole value has no braces."""
        if depth > _MAX_DEPTH:
            raise part.error("is nested too deeply.")
        value = part.value
        if isinstance(value, str):
            return f"{{{value}}}" if _EXPRESSION.fullmatch(value) else value
        if isinstance(value, list):
            return [self._fill_values(each, depth + 1) for each in part.items()]
        if isinstance(value, Mapping):
            members = part.members()
            if set(members) == {"context", "selector", "type"}:
                raise part.error("is a selector, which is not supported.", "Write an expression.")
            return {key: self._fill_values(part.at(key, each), depth + 1) for key, each in members.items()}
        return value

    def _resolve_reference(self, part: JsonPart, depth: int) -> Any:  # noqa: ANN401 - JSON
        """Replace the references in a schema by the parts that they refer to."""
        if depth > _MAX_DEPTH:
            raise part.error("refers to itself, or is nested too deeply.")
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise part.error(f"makes more than {_MAX_PARTS:,} parts in the inputs.", "Use fewer references.")
        value = part.value
        if isinstance(value, list):
            return [self._resolve_reference(each, depth + 1) for each in part.items()]
        if isinstance(value, str | int | float) or (value is None and depth):
            return value
        members = part.members()
        reference = members.get("$ref")
        if isinstance(reference, str) and reference.startswith(_INPUTS):
            inputs = self._root.get("components").get("inputs")
            name = reference.removeprefix(_INPUTS)
            if name not in inputs.members():
                raise part.error(f"refers to {reference[:80]!r}, which is not there.")
            return self._resolve_reference(inputs.get(name), depth + 1)
        return {key: self._resolve_reference(part.at(key, each), depth + 1) for key, each in members.items()}
