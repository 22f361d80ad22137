"""Flows for operations of an OpenAPI description (3.0 or 3.1), as a beginning that a builder goes on from.

Here are also the descriptions that an Arazzo document names, and their operations; they are not validated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, cast

from loom_core.cjk import has_cjk
from loom_core.errors import ConfigError, NotFoundError
from loom_core.flow.config.models import FlowConfig
from loom_core.jsonc import object_of
from loom_core.llm.json_schema.values import readable_path

__all__ = [
    "ImportedFlows",
    "JsonPart",
    "OpenApiSources",
    "Operation",
    "flows_of_openapi",
    "parse_document",
    "source_addresses",
]


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


_PATH = re.compile(r"\{?\$sourceDescriptions\.([^.{}]+)(?:\.url)?\}?#/paths/([^/]+)/([a-z]+)")
_METHODS = ("get", "head", "post", "put", "patch", "delete")
"""Methods of requests, as in OpenAPI."""
_SOURCE_ADVICE = "Give the OpenAPI description, too: --source NAME=FILE."


@dataclass(frozen=True, slots=True)
class Operation:
    """Method and path of the request that a step makes.

    The path has `{name}` for parameters; it is an absolute address if there are several servers.
    """

    method: str
    path: str


def parse_document(text: str, *, name: str) -> object:
    """Parse a text in JSON or YAML.

    Raises:
        ConfigError: the text is neither, or it is YAML and no parser is installed.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            f"{name} is not JSON, and no YAML parser is installed.", advice="Install the extra `install`."
        ) from None
    try:
        if "*" in text and _has_alias(text):
            raise ConfigError(f"{name} has aliases, such as *this.", advice="Replace them by their values.")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise ConfigError(f"{where}: this is neither JSON nor YAML.", advice="Correct it there.") from None


def source_addresses(text: str, *, name: str) -> dict[str, str]:
    """Return the addresses of the descriptions that a document names, by name.

    Raises:
        ConfigError: it is no such document.
    """
    root = JsonPart(parse_document(text, name=name), name=name)
    parts = root.get("sourceDescriptions").items()
    return {each.text("name", required=True): each.text("url") for each in parts}


class OpenApiSources:
    """The OpenAPI descriptions that a document names.

    Raises:
        ConfigError: a text is no description, or the document does not name it.
    """

    def __init__(self, root: JsonPart, texts: Mapping[str, str]) -> None:
        names = [each.text("name", required=True) for each in root.get("sourceDescriptions").items()]
        if unknown := [name for name in texts if name not in names]:
            raise root.get("sourceDescriptions").error(
                f"does not name {unknown[0]!r}.", f"It names: {', '.join(names) or 'none'}."
            )
        self._names = names
        self._documents = {
            name: JsonPart(parse_document(text, name=name), name=name) for name, text in texts.items()
        }
        self._servers = {name: _server_of(document) for name, document in self._documents.items()}
        servers = {server for server in self._servers.values() if server}
        self.flow_url = servers.pop() if len(names) == 1 and len(servers) == 1 else ""
        """Address of the only server, or empty."""

    def operation(self, step: JsonPart) -> Operation:
        """Return the method and path of a step's request.

        Raises:
            ConfigError: the step calls nothing, or an unknown operation.
        """
        if path := step.text("operationPath"):
            found = _PATH.fullmatch(path)
            if not found or found[3] not in _METHODS or found[1] not in self._names:
                raise step.get("operationPath").error(
                    "is not an operation of a source.",
                    "An example: {$sourceDescriptions.NAME.url}#/paths/~1orders/post",
                )
            way = found[2].replace("~1", "/").replace("~0", "~")
            return Operation(found[3].upper(), self._address(found[1], way))
        identifier = step.text("operationId", required=True)
        source, _, bare = identifier.removeprefix("$sourceDescriptions.").rpartition(".")
        for name, document in self._documents.items():
            wanted = bare if source == name else identifier
            for way, item in document.get("paths").members().items():
                operations = document.get("paths").at(way, item).members()
                for method in _METHODS:
                    if _id_of(operations.get(method)) == wanted:
                        return Operation(method.upper(), self._address(name, way))
        raise step.get("operationId").error(
            f"{identifier[:80]!r} is not in the available sources.", _SOURCE_ADVICE
        )

    def _address(self, name: str, way: str) -> str:
        return way if self.flow_url else self._servers.get(name, "") + way


def _has_alias(text: str) -> bool:
    """Return whether a YAML text has aliases, which can expand without limit."""
    import yaml

    tokens = cast("Iterable[object]", yaml.scan(text))  # pyright: ignore[reportUnknownMemberType]
    return any(isinstance(token, yaml.AliasToken) for token in tokens)


def _server_of(document: JsonPart) -> str:
    """Return the address of a description's first server, if it is absolute."""
    for server in document.get("servers").items():
        url = server.text("url").rstrip("/")
        for name in server.get("variables").members():
            url = url.replace(f"{{{name}}}", server.get("variables").get(name).text("default"))
        return url if url.startswith(("https://", "http://")) and "{" not in url else ""
    return ""


def _id_of(operation: object) -> str:
    return str(object_of(operation).get("operationId", ""))


_MAX_LENGTH = 200


class JsonPart:
    """A value in a document, with its path."""

    def __init__(self, value: object, *, name: str, path: tuple[str | int, ...] = ()) -> None:
        self.value = value
        self._name = name
        self._path = path

    def error(self, message: str, advice: str = "Correct it there.") -> ConfigError:
        """Return an error that points at this value."""
        return ConfigError(
            f"{self._name}: {readable_path(self._path)[:_MAX_LENGTH]} {message}", advice=advice
        )

    def at(self, key: str | int, value: object) -> JsonPart:
        """Return a value as a child of this one."""
        return JsonPart(value, name=self._name, path=(*self._path, key))

    def get(self, key: str) -> JsonPart:
        """Return the member of a name; its value is None if it does not exist."""
        return self.at(key, self.members().get(key))

    def members(self) -> Mapping[str, Any]:
        """Return the members of an object; none if the value is None.

        Raises:
            ConfigError: it is not an object.
        """
        if self.value is None:
            return {}
        value: object = self.value
        if not isinstance(value, Mapping):
            raise self.error("should be an object.")
        members = cast("Mapping[Any, Any]", value)
        if not all(isinstance(key, str) for key in members):
            raise self.error("has a name that is not a string.")
        return members

    def items(self) -> Iterator[JsonPart]:
        """Yield the elements of a list; none if the value is None.

        Raises:
            ConfigError: it is no list.
        """
        if self.value is None:
            return
        value: object = self.value
        if not isinstance(value, list):
            raise self.error("should be a list.")
        for index, each in enumerate(cast("list[object]", value)):
            yield self.at(index, each)

    def text(self, key: str, *, required: bool = False) -> str:
        """Return a text member; empty if it does not exist.

        Raises:
            ConfigError: it is no text, or it is required and missing.
        """
        value = self.members().get(key)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or (required and not value):
            raise self.get(key).error("should be a text." if value is not None else "is missing.")
        return value

    def number(self, key: str, otherwise: float) -> float:
        """Return a number member.

        Raises:
            ConfigError: it is no number.
        """
        value = self.members().get(key)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.get(key).error("should be a number.")
        return value


_OPENAPI_VERSION = re.compile(r"3\.[012]\.\d+(-.+)?")
_MAX_DEPTH = 12  # of schemas; what is nested deeper, or in itself, is any value
_SHOWN = 30  # operations in a message
_DESCRIPTION = 500  # characters, of the first paragraph
_SKIPPED = {"example", "examples", "xml", "externalDocs", "discriminator", "deprecated", "nullable"}
_SMALL_WORDS = frozenset("a an the all new one some my your this that of for to by in on with".split())


@dataclass(slots=True)
class _Operation:
    """An operation of the description, with the parameters of its path.

    Its name is `METHOD /path`; its id is its `operationId`, else made of its method and path.
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
    if not _OPENAPI_VERSION.fullmatch(version := root.text("openapi") or root.text("swagger")):
        raise root.get("openapi").error(
            f"is {version[:20]!r}.", "Loom reads OpenAPI 3.0 to 3.2; convert a description of Swagger 2.0."
        )
    known = _operations(root)
    chosen = [_find(each, known) for each in operations]
    if not chosen:
        raise NotFoundError("For which operations? Name at least one.", advice=_listed(known))
    url = _server_of(root)
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
        for method in _METHODS:
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
