"""Import and export of flows as Arazzo documents (1.0 or 1.1): their workflows of HTTP requests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import ValidationError

from loom_core.config_file import plain_reason
from loom_core.errors import InvalidInputError
from loom_core.flow.config.models import FlowConfig
from loom_core.flow.config.models_endpoint import BODYLESS, reference_in
from loom_core.flow.config.models_step import Action, StepConfig
from loom_core.flow.config.openapi import ImportedFlows, JsonPart, OpenApiSources, Operation, parse_document
from loom_core.flow.config.step_validation import input_names
from loom_core.llm.json_schema.values import readable_path

if TYPE_CHECKING:
    from loom_core.flow.config.flow_file import LoadedFlows
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.config.models_endpoint import Criterion, EndpointConfig

__all__ = [
    "ArazzoExport",
    "export_arazzo",
    "import_arazzo",
]

_EXTENSION = "x-loom"  # key of an exported workflow or step, for everything that Arazzo cannot express
_OPTIONAL = "optional"  # key in it for optional outputs of a step
_RESPONSE = "response"  # key in it for an end's text for the user
_REQUEST_EXTENSIONS: Mapping[str, type] = {"idempotent": bool, "failure": str, "retries": int}
_SUCCESS = "$statusCode >= 200 && $statusCode < 300"  # of a request without criteria: Arazzo has no default
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
        extra = {
            key: each for key, each in part.get(_EXTENSION).members().items() if key in _EXTENSION_FIELDS
        }
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
            "successCriteria": [each for each in criteria if each["condition"] != _SUCCESS],
            "onSuccess": self._actions(part, workflow, "onSuccess", "successActions"),
            "onFailure": self._actions(part, workflow, "onFailure", "failureActions"),
            "outputs": self._outputs(part),
        }
        optional = part.get(_EXTENSION).members().get(_OPTIONAL)
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
        kept = part.get(_EXTENSION).members()
        step["operation"] |= {
            key: kept[key] for key, kind in _REQUEST_EXTENSIONS.items() if isinstance(kept.get(key), kind)
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
        if isinstance(said := part.get(_EXTENSION).members().get(_RESPONSE), str):
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


_PLAIN, _WITH_TIMEOUT = "1.0.1", "1.1.0"
"""The oldest version that supports the document's features, so that more programs can read it."""
_REQUEST = "request"
_VARIABLE = "A variable of the conversation."
_PLACEHOLDER = re.compile(r"\{(\$[^{}]*)\}")
_CONTEXT = re.compile(r"\$context\.([^\s{}()\[\]#.,;=<>!&|\"'/\\]+)")
_MESSAGE = re.compile(r"\$message\b")
_OUTPUT = re.compile(r"\$response|\$statusCode")
_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ArazzoExport:
    """Flows as an Arazzo document.

    Attributes:
        document: the Arazzo document.
        descriptions: OpenAPI descriptions by the name of the file that the document expects them in.
        left_out: flows that Arazzo cannot express, each with the reason.
    """

    document: Mapping[str, Any]
    descriptions: Mapping[str, Mapping[str, Any]]
    left_out: tuple[str, ...] = ()


def export_arazzo(loaded: LoadedFlows) -> ArazzoExport:
    """Export the flows of a file whose steps are requests or other flows.

    Variables of the context, the message and secrets become inputs: the workflow's caller provides them.
    """
    left_out: dict[str, str] = {}
    while True:
        servers = _Servers(loaded.file.flow_url)
        workflows, lost = _write_workflows(loaded.file, servers, left_out)
        if not lost:
            break
        left_out |= lost
    settings = loaded.file.basic_settings
    info: dict[str, Any] = {"title": settings.name or "Flows", "version": loaded.version}
    if settings.description:
        info["description"] = settings.description
    timed = any("timeout" in step for workflow in workflows for step in workflow["steps"])
    document = {
        "arazzo": _WITH_TIMEOUT if timed else _PLAIN,
        "info": info,
        "sourceDescriptions": [
            {"name": name, "url": f"{name}.openapi.json", "type": "openapi"} for name in servers.names
        ],
        "workflows": workflows,
    }
    told = tuple(f"{flow_id}: {reason}" for flow_id, reason in left_out.items())
    return ArazzoExport(document, servers.descriptions(info), told)


def _write_workflows(
    file: FlowFile, servers: _Servers, left_out: Mapping[str, str]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Write the supported flows as workflows; return the others too, each with the reason."""
    workflows: list[dict[str, Any]] = []
    lost: dict[str, str] = {}
    for flow in file.flows:
        if not flow.enabled or flow.flow_id in left_out:
            continue
        other = next((step.workflow_id for step in flow.steps if step.workflow_id in left_out), "")
        if other:
            lost[flow.flow_id] = f"It runs {other!r}, which is not exported."
            continue
        try:
            workflows.append(_Workflow(file, flow, servers).write())
        except InvalidInputError as error:
            lost[flow.flow_id] = error.message
    return workflows, lost


class _Servers:
    """The servers of requests; each becomes an OpenAPI description."""

    def __init__(self, flow_url: str) -> None:
        self._flow_url = flow_url.rstrip("/")
        self._paths: dict[str, dict[str, dict[str, Any]]] = {}

    @property
    def names(self) -> list[str]:
        """Names of the descriptions."""
        return [f"api{number or ''}" for number in range(len(self._paths))]

    def reference(self, method: str, url: str, path: str, parameters: list[dict[str, Any]]) -> str:
        """Return a step's reference to an operation, and add the operation to its description."""
        parts = urlsplit(url)
        server = f"{parts.scheme}://{parts.netloc}" if parts.netloc else self._flow_url
        paths = self._paths.setdefault(server, {})
        paths.setdefault(path, {})[method.lower()] = {
            "parameters": [
                {"name": each["name"], "in": each["in"], "required": each["in"] == "path", "schema": {}}
                for each in parameters
                if each["in"] in {"path", "query"}
            ],
            "responses": {"default": {"description": "The answer."}},
        }
        name = self.names[list(self._paths).index(server)]
        pointer = path.replace("~", "~0").replace("/", "~1")
        return f"{{$sourceDescriptions.{name}.url}}#/paths/{pointer}/{method.lower()}"

    def descriptions(self, info: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the descriptions by file name."""
        return {
            f"{name}.openapi.json": {
                "openapi": "3.1.0",
                "info": {"title": info["title"], "version": info["version"]},
                "servers": [{"url": server}],
                "paths": paths,
            }
            for name, (server, paths) in zip(self.names, self._paths.items(), strict=True)
        }


class _Workflow:
    """Writer of one flow as a workflow."""

    def __init__(self, file: FlowFile, flow: FlowConfig, servers: _Servers) -> None:
        self._file = file
        self._flow = flow
        self._servers = servers
        self._known = input_names(flow.input_schema)
        self._added: dict[str, Any] = {}

    def write(self) -> dict[str, Any]:
        """Return the workflow.

        Raises:
            InvalidInputError: Arazzo cannot express the flow.
        """
        flow = self._flow
        own, told = flow.steps, flow.response
        if not own:
            # A step's end has the text about the answer, because the workflow itself has no answer.
            told = "" if _OUTPUT.search(flow.response) else flow.response
            ends = [Action(type="end", response=flow.response)] if told != flow.response else []
            own = [StepConfig(stepId=_REQUEST, operation=self._file.endpoint_of(flow), onSuccess=ends)]
        steps = [self._step(step) for step in own]
        outputs: dict[str, str] = {}
        for name, expression in flow.outputs.items():
            if _OUTPUT.match(expression):  # of the last answer, which a workflow cannot refer to
                steps[-1].setdefault("outputs", {})[name] = self._text(expression)
                expression = f"$steps.{own[-1].step_id}.outputs.{name}"
            outputs[name] = self._text(expression)
        kept = flow.model_dump(mode="json", include={*_EXTENSION_FIELDS}, exclude_defaults=True)
        if not told:
            kept.pop(_RESPONSE, None)
        workflow: dict[str, Any] = {
            "workflowId": flow.flow_id,
            "summary": flow.title,
            "description": flow.description,
            "inputs": self._inputs(),
            "steps": steps,
            "outputs": outputs,
            _EXTENSION: kept,
        }
        return {key: each for key, each in workflow.items() if each not in ({}, "")}

    def _inputs(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", **self._flow.input_schema}
        properties = {**schema.get("properties", {}), **self._added}
        return {**schema, "properties": properties} if properties else schema

    def _step(self, step: StepConfig) -> dict[str, Any]:
        if step.kind not in {"operation", "workflow"}:
            raise InvalidInputError(
                f"The step {step.step_id!r} is neither a request nor another flow (kind {step.kind})."
            )
        written: dict[str, Any] = {"stepId": step.step_id}
        if step.description:
            written["description"] = step.description
        outputs = {name: self._text(each.removesuffix("?")) for name, each in step.outputs.items()}
        criteria = [*step.success_criteria]
        if step.kind == "workflow":
            written["workflowId"] = step.workflow_id
            seconds = step.timeout_seconds
            given = [{"name": key, "value": self._value(each)} for key, each in step.arguments.items()]
            if given:
                written["parameters"] = given
        else:
            request = step.request()
            written |= self._request(request)
            seconds = request.timeout_seconds if "timeout_seconds" in request.model_fields_set else None
            criteria = [*request.success_criteria, *criteria]
            outputs.setdefault("result", self._text(request.result))
        if kept := _extension_fields(step):
            written[_EXTENSION] = kept
        if seconds is not None:
            written["timeout"] = round(seconds * 1000)
        told = [self._criterion(each) for each in criteria]
        if step.kind == "operation" and not step.request().success_criteria:
            told.insert(0, {"condition": _SUCCESS})
        if told:
            written["successCriteria"] = told
        for key, actions in (("onSuccess", step.on_success), ("onFailure", step.on_failure)):
            written[key] = [
                self._action(each, f"{step.step_id}-{key}-{number}") for number, each in enumerate(actions, 1)
            ]
        written["outputs"] = outputs
        return {key: each for key, each in written.items() if each not in ([], {})}

    def _request(self, request: EndpointConfig) -> dict[str, Any]:
        path, parameters = self._path(request.url)
        query = {**(request.query or {})}
        body: Any = request.body
        if request.sends_inputs:
            named = {each["value"] for each in parameters}
            given = {name: f"{{$inputs.{name}}}" for name in sorted(self._known or ())}
            given = {name: value for name, value in given.items() if value[1:-1] not in named}
            if request.method in BODYLESS:
                query = {**given}
            else:
                body = given
        for where, values in (("query", query), ("header", request.headers)):
            parameters += [
                {"name": name, "in": where, "value": self._value(value)} for name, value in values.items()
            ]
        url = request.url or self._file.flow_url
        written: dict[str, Any] = {
            "operationPath": self._servers.reference(request.method, url, path, parameters)
        }
        if parameters:
            written["parameters"] = parameters
        if body is not None:
            written["requestBody"] = {"contentType": request.content_type, "payload": self._value(body)}
        return written

    def _path(self, url: str) -> tuple[str, list[dict[str, Any]]]:
        """Return an address as an OpenAPI path and its parameters, query parameters included."""
        way, _, query = url.partition("?")
        parts = urlsplit(way)
        way = way[len(f"{parts.scheme}://{parts.netloc}") :] if parts.netloc else way
        parameters: list[dict[str, Any]] = []

        def name_parameter(match: re.Match[str]) -> str:
            last = re.split(r"[.#/]", match[1])[-1].lstrip("$")
            taken = {each["name"] for each in parameters}
            name = last if _NAME.fullmatch(last) and last not in taken else f"p{len(parameters) + 1}"
            parameters.append({"name": name, "in": "path", "value": self._text(match[1])})
            return f"{{{name}}}"

        path = _PLACEHOLDER.sub(name_parameter, way)
        parameters += [
            {"name": name, "in": "query", "value": self._value(value)}
            for name, value in parse_qsl(query, keep_blank_values=True)
        ]
        return (path if path.startswith("/") else f"/{path}"), parameters

    def _criterion(self, criterion: Criterion) -> dict[str, Any]:
        written = {"condition": self._text(criterion.condition)}
        if criterion.context:
            written["context"] = self._text(criterion.context)
        if criterion.type != "simple":
            written["type"] = criterion.type
        return written

    def _action(self, action: Action, name: str) -> dict[str, Any]:
        written: dict[str, Any] = {"name": action.name or name, "type": action.type}
        if action.step_id:
            written["stepId"] = action.step_id
        if action.type == "retry":
            written |= {"retryAfter": action.retry_after, "retryLimit": action.retry_limit}
        if action.criteria:
            written["criteria"] = [self._criterion(each) for each in action.criteria]
        if action.response:
            written[_EXTENSION] = {_RESPONSE: action.response}
        return written

    def _value(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Convert a template to Arazzo: an expression that is a whole value has no braces there."""
        if isinstance(value, list):
            return [self._value(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: self._value(each) for key, each in cast("dict[str, Any]", value).items()}
        if not isinstance(value, str):
            return value
        if reference := reference_in(value):
            name = quote(reference.partition(":")[2], safe="")
            self._add(name, "A secret.")
            word = value.removesuffix(reference)
            return f"{word}{{$inputs.{name}}}" if word else f"$inputs.{name}"
        whole = _PLACEHOLDER.fullmatch(value)
        return self._text(whole[1] if whole else value)

    def _text(self, text: str) -> str:
        """Replace references to the context and the message in a text by references to inputs."""
        text = _CONTEXT.sub(lambda match: f"$inputs.{self._add(match[1], _VARIABLE)}", text)
        text = _MESSAGE.sub(lambda _: f"$inputs.{self._add('message', 'What the user has written.')}", text)
        if "$context" in text or "$inputs}" in text or text in {"$inputs", "$context"}:
            raise InvalidInputError("It passes on all inputs or the whole context at once.")
        return text

    def _add(self, name: str, description: str) -> str:
        """Add an input that the flow does not declare, and return its name."""
        if (
            name in (self._known or ())
            or self._added.get(name, {}).get("description", description) != description
        ):
            raise InvalidInputError(f"{name!r} is the name of an input and of something else.")
        self._added[name] = {"description": description}
        return name


def _extension_fields(step: StepConfig) -> dict[str, Any]:
    """Return the fields of a step that Arazzo cannot express."""
    kept: dict[str, Any] = {}
    if step.operation is not None:
        kept = step.request().model_dump(mode="json", include={*_REQUEST_EXTENSIONS}, exclude_defaults=True)
    if optional := [name for name, each in step.outputs.items() if each.endswith("?")]:
        kept[_OPTIONAL] = optional
    return kept
