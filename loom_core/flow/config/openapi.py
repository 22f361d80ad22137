"""Flows for operations of an OpenAPI description (3.0 or 3.1), as a beginning that a builder goes on from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, cast

from loom_core.cjk import has_cjk
from loom_core.errors import NotFoundError
from loom_core.flow.config.arazzo.importer import ImportedFlows
from loom_core.flow.config.arazzo.sources import METHODS, JsonPart, parse_document, server_of
from loom_core.flow.config.models import FlowConfig

__all__ = ["flows_of_openapi"]

_VERSION = re.compile(r"3\.[012]\.\d+(-.+)?")
_MAX_DEPTH = 12  # of schemas; what is nested deeper, or in itself, is any value
_SHOWN = 30  # operations in a message
_DESCRIPTION = 500  # characters, of the first paragraph
_SKIPPED = {"example", "examples", "xml", "externalDocs", "discriminator", "deprecated", "nullable"}
_SMALL_WORDS = frozenset("a an the all new one some my your this that of for to by in on with".split())


@dataclass(slots=True)
class _Operation:
    """An operation of the description.

    Attributes:
        name: `METHOD /path`.
        id: its `operationId`, else made of its method and path.
        part: its description.
        parameters: its parameters, with those of its path.
    """

    name: str
    id: str
    part: JsonPart
    parameters: list[JsonPart] = field(default_factory=list["JsonPart"])


def flows_of_openapi(text: str, operations: Sequence[str] = (), *, name: str = "openapi") -> ImportedFlows:
    """Return a flow for each chosen operation: its inputs, its request, a pattern of its summary's words.

    Args:
        text: the description, JSON, or YAML (needs the extra `install`).
        operations: ids, or methods and paths such as `GET /pets`.
        name: name of the description in messages.

    Raises:
        NotFoundError: an operation does not exist, or none is chosen; the advice lists them.
        ConfigError: it is no such description, or an operation needs what flows cannot send.
    """
    root = JsonPart(parse_document(text, name=name), name=name)
    if not _VERSION.fullmatch(version := root.text("openapi") or root.text("swagger")):
        raise root.get("openapi").error(
            f"is {version[:20]!r}.", "Loom reads OpenAPI 3.0 to 3.2; convert a description of Swagger 2.0."
        )
    known = _operations(root)
    chosen = [_find(each, known) for each in operations]
    if not chosen:
        raise NotFoundError("For which operations? Name at least one.", advice=_listed(known))
    url = server_of(root)
    notes = [] if url else ["Set `flow_url`: the base address for the paths of the API."]
    flows = tuple(_flow(root, each) for each in chosen)
    notes += [f"{flow.flow_id}: add what users say to `trigger_patterns`." for flow in flows]
    if root.get("security").value or root.get("components").get("securitySchemes").value:
        notes.append("Add how the API authenticates, to `net` or `headers`, as docs/security.md says.")
    return ImportedFlows(flows, url, tuple(notes))


def _operations(root: JsonPart) -> list[_Operation]:
    found: list[_Operation] = []
    paths = root.get("paths")
    for path, item in paths.members().items():
        of_path = _resolve(root, paths.at(path, item))
        for method in METHODS:
            part = of_path.get(method)
            if part.value is None:
                continue
            id_ = part.text("operationId") or f"{method} {path}"
            own = [_resolve(root, each) for each in part.get("parameters").items()]
            names = {(each.text("in"), each.text("name")) for each in own}
            shared = [_resolve(root, each) for each in of_path.get("parameters").items()]
            own += [each for each in shared if (each.text("in"), each.text("name")) not in names]
            found.append(_Operation(f"{method.upper()} {path}", id_, part, own))
    return found


def _find(wanted: str, known: Iterable[_Operation]) -> _Operation:
    known = list(known)
    for each in known:
        if wanted in {each.id, each.name}:
            return each
    near = get_close_matches(wanted, [name for each in known for name in (each.id, each.name)], n=1)
    advice = f"Did you mean {near[0]!r}?" if near else _listed(known)
    raise NotFoundError(f"There is no operation {wanted[:80]!r}.", advice=advice)


def _listed(known: Sequence[_Operation]) -> str:
    shown = [f"{each.id} ({each.name})" if each.id != each.name else each.name for each in known[:_SHOWN]]
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"There are: {', '.join(shown) or 'none'}{more}."


def _flow(root: JsonPart, operation: _Operation) -> FlowConfig:
    method, path = operation.name.split(" ", 1)
    part = operation.part
    properties: dict[str, Any] = {}
    required: list[str] = []
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    for each in operation.parameters:
        where, name = each.text("in", required=True), each.text("name", required=True)
        if where == "cookie":
            continue
        properties[name] = _parameter_schema(root, each)
        if each.get("required").value or where == "path":
            required.append(name)
        if where == "path":
            path = path.replace(f"{{{name}}}", _input(name))
        elif where == "query":
            query[name] = _input(name)
        else:
            headers[name] = _input(name)
    written: dict[str, Any] = {"method": method, "url": path}
    body = _resolve(root, part.get("requestBody"))
    if body.value is not None:
        written |= _body(root, body, properties, required)
    if query or "body" not in written:
        written["query"] = query
    if headers:
        written["headers"] = headers
    summary = part.text("summary") or part.text("operationId")
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(dict.fromkeys(required))
    return FlowConfig(
        flow_id=re.sub(r"[^\w-]+", "_", operation.id).strip("_")[:64],
        name=summary,
        description=part.text("description").strip().split("\n\n")[0][:_DESCRIPTION] or summary,
        trigger_patterns=_patterns(summary),
        endpoint=cast("Any", written),
        input_schema=schema if properties else {},
    )


def _input(name: str) -> str:
    return f"{{$inputs.{name}}}" if re.fullmatch(r"[A-Za-z_]\w*", name) else f'{{$inputs["{name}"]}}'


def _parameter_schema(root: JsonPart, part: JsonPart) -> dict[str, Any]:
    schema = cast("dict[str, Any]", _schema(root, part.get("schema"), (), 0) or {})
    told = part.text("description")
    return {**schema, "description": told} if told else schema


def _body(root: JsonPart, body: JsonPart, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the body of the request, and add its members to the inputs.

    Raises:
        ConfigError: it is in a form that flows do not send, or a member has the name of a parameter.
    """
    content = body.get("content")
    kinds = content.members()
    kind = next(
        (each for each in kinds if each.split(";")[0].strip() in _KINDS or each.endswith("+json")), ""
    )
    if not kind:
        raise content.error(
            f"has none of the kinds that flows send: {', '.join(kinds) or 'none'}.",
            "Leave the operation out, or write the flow by hand.",
        )
    part = content.get(kind).get("schema")
    schema = cast("dict[str, Any]", _schema(root, part, (), 0) or {})
    schema = _merged(schema)
    members = schema.get("properties")
    if not isinstance(members, Mapping) or not members:
        properties["body"] = schema
        required += ["body"] if body.get("required").value else []
        return {"content_type": kind, "body": _input("body")}
    taken: dict[str, Any] = {}
    for name, each in cast("Mapping[str, Any]", members).items():
        if isinstance(each, Mapping) and cast("Mapping[str, Any]", each).get("readOnly"):
            continue
        if name in properties:
            raise part.error(f"has {name!r}, which is a parameter, too.", "Write this flow by hand.")
        taken[name] = each
    properties |= taken
    wanted = cast("list[str]", schema.get("required") or [])
    required += [name for name in wanted if name in taken]
    return {"content_type": kind, "body": {name: _input(name) for name in taken}}


_KINDS = frozenset({"application/json", "application/x-www-form-urlencoded"})


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    """Merge the parts of an `allOf` of objects into one object."""
    parts = cast("list[dict[str, Any]]", schema.get("allOf") or [])
    if not parts:
        return schema
    merged: dict[str, Any] = {**schema, "properties": {**schema.get("properties", {})}}
    del merged["allOf"]
    for each in map(_merged, parts):
        merged["properties"] |= each.get("properties", {})
        merged["required"] = [*merged.get("required", []), *each.get("required", [])]
    return merged


def _resolve(root: JsonPart, part: JsonPart) -> JsonPart:
    """Follow the reference that a part is; any other part is returned as it is.

    Raises:
        ConfigError: it is in another document, or there is nothing.
    """
    for _ in range(_MAX_DEPTH):
        if not isinstance(part.value, Mapping) or not isinstance(reference := part.get("$ref").value, str):
            return part
        if not reference.startswith("#/"):
            raise part.error(f"refers to {reference[:80]!r}.", "Bundle the description into one file first.")
        found = root
        for name in reference.removeprefix("#/").split("/"):
            found = found.get(name.replace("~1", "/").replace("~0", "~"))
        if found.value is None:
            raise part.error(f"refers to {reference[:80]!r}, which is not there.")
        part = found
    raise part.error("refers to itself.")


def _schema(root: JsonPart, part: JsonPart, above: tuple[str, ...], depth: int) -> Any:  # noqa: ANN401 - JSON
    """Return a schema without references, in JSON Schema 2020-12."""
    if not isinstance(part.value, Mapping):
        return part.value
    if isinstance(reference := part.get("$ref").value, str):
        if reference in above or depth > _MAX_DEPTH:
            return {}
        return _schema(root, _resolve(root, part), (*above, reference), depth + 1)
    written: dict[str, Any] = {}
    for key, value in part.members().items():
        if key in _SKIPPED or key.startswith("x-"):
            continue
        member = part.at(key, value)
        if key in {"properties", "patternProperties", "$defs"}:
            inner = member.members().items()
            written[key] = {
                name: _schema(root, member.at(name, one), above, depth + 1) for name, one in inner
            }
        elif key in {"items", "additionalProperties", "not"}:
            written[key] = _schema(root, member, above, depth + 1)
        elif key in {"allOf", "anyOf", "oneOf"}:
            written[key] = [_schema(root, each, above, depth + 1) for each in member.items()]
        else:
            written[key] = value
    return _with_keywords_of_3_1(written, nullable=bool(part.get("nullable").value))


def _with_keywords_of_3_1(schema: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """Return a schema of OpenAPI 3.0 as one of JSON Schema."""
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(flag := schema.get(bound), bool):
            del schema[bound]
            if flag and limit in schema:
                schema[bound] = schema.pop(limit)
    if nullable and isinstance(kind := schema.get("type"), str):
        schema["type"] = [kind, "null"]
    return schema


def _patterns(summary: str) -> list[str]:
    """Return a pattern of a summary's words, with others between them: `book.{0,20}visit`."""
    if has_cjk(summary):
        return [re.escape(summary.strip("。. "))]
    words = [word for word in re.findall(r"[A-Za-z]+", summary) if word.lower() not in _SMALL_WORDS]
    stems = [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words[:4]]
    return [r"(?i)\b" + r".{0,20}".join(f"{stem.lower()}\\w*" for stem in stems)] if stems else []
