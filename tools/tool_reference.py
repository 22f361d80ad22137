"""Writes docs/reference/tools.md: the tools of the four servers (`python -m tools.reference tool`).

The page is made from the servers' contracts, servers/*/contract.json, which a test compares with the servers.
Contracts have the outlines of results, as clients get them; the page has the whole schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.contract import WITH_OPTIONS, answer_schemas, load_accepted
from tools.provider_reference import table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "tools.md"

_HEAD = """\
# Tools, prompts and resources of the servers

Made by `python -m tools.reference` from the servers' contracts; do not edit. Descriptions are those that a
model reads in an empty home; in one with content they name what is there. loom-kb is shown as it is
with `--root /notes --allow-urls`: without these its tool `add` has no `paths` and no `urls`.

Arguments that a tool does not know are refused. Results come as text for the model and as structured
content with the fields given here; the output schemas in `tools/list` are shorter: the types of fields
without their meanings, and of objects in a result the fields only where these are few. What goes wrong comes
as a result with `isError` whose text says what happened and what to do (see [errors.md](errors.md)); a tool
that does not exist is an error of the protocol. Of the annotations, `reads` stands for `readOnlyHint`,
`destroys` for `destructiveHint`, `idempotent` for `idempotentHint`, and `open world` for `openWorldHint`.
"""

_SERVERS = {
    "kb": "loom-kb",
    "query": "loom-query-server",
    "agent": "loom-agent-server",
    "flow": "loom-flow-server",
}
_HINTS = {
    "readOnlyHint": "reads",
    "destructiveHint": "destroys",
    "idempotentHint": "idempotent",
    "openWorldHint": "open world",
}
_BOUNDS = {
    "minimum": "from {}",
    "maximum": "up to {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for folder, name in _SERVERS.items():
        contract = load_accepted(folder)
        parts += [
            f"## {name}",
            *_surface(contract.get(WITH_OPTIONS, contract["full"]), answer_schemas(folder)),
        ]
        if "chatgpt" in contract:
            answers = answer_schemas(folder, "chatgpt")
            parts += [f"## {name}, profile `chatgpt`", *_surface(contract["chatgpt"], answers)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _surface(surface: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for tool in surface["tools"]:
        yield from _tool(tool, answers[tool["name"]])
    for prompt in surface.get("prompts", ()):
        yield f"### Prompt `{prompt['name']}`"
        yield prompt["description"]
        rows = [
            (f"`{each['name']}`", "yes" if each.get("required") else "–", each.get("description", ""))
            for each in prompt.get("arguments", ())
        ]
        if rows:
            yield table([("argument", "required", "meaning"), *rows])
    if templates := surface.get("resourceTemplates"):
        rows = [(f"`{each['uriTemplate']}`", each.get("description", "")) for each in templates]
        yield "### Resources"
        yield table([("URI", "what"), *rows])


def _tool(tool: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    hints = [word for key, word in _HINTS.items() if tool["annotations"].get(key)]
    yield f"### `{tool['name']}`"
    yield f"**{tool['title']}** ({', '.join(hints) or 'changes, destroys nothing'})"
    yield tool["description"]
    schema = tool["inputSchema"]
    if schema.get("properties"):
        yield table(_arguments(schema))
    yield "Result:"
    yield table(_results(answer))


def _arguments(schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield "argument", "type", "default", "meaning"
    definitions, required = schema.get("$defs", {}), schema.get("required", ())
    for name, form in schema["properties"].items():
        default = "required" if name in required else ""
        if form.get("default") is not None:
            default = f"`{json.dumps(form['default'], ensure_ascii=False)}`"
        yield f"`{name}`", _type(form, definitions), default, _meaning(form)


def _results(schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield "field", "type", "meaning"
    yield from _fields(schema, schema.get("$defs", {}), "", ())


def _fields(
    form: Mapping[str, Any], definitions: Mapping[str, Any], path: str, within: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of an object's fields, those of objects in it below them."""
    for name, field in form.get("properties", {}).items():
        yield f"`{path}{name}`", _type(field, definitions), _meaning(field)
        inner, steps = _object(field)
        if inner and inner not in within:
            yield from _fields(definitions[inner], definitions, f"{path}{name}{steps}.", (*within, inner))


def _object(form: Mapping[str, Any]) -> tuple[str, str]:
    """Return the definition that a field refers to, or empty, and how its path goes on."""
    if "$ref" in form:
        return form["$ref"].rpartition("/")[2], ""
    if form.get("type") == "array":
        inner, steps = _object(form.get("items", {}))
        return inner, f"[]{steps}"
    for part in form.get("anyOf", ()):
        if (found := _object(part))[0]:
            return found
    return "", ""


def _type(form: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "enum" in form:
        return " or ".join(f"`{value}`" for value in form["enum"])
    if "const" in form:
        return f"`{form['const']}`"
    if "anyOf" in form:
        kinds = [_type(part, definitions) for part in form["anyOf"]]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in form:
        definition = definitions.get(form["$ref"].rpartition("/")[2], {})
        return _type(definition, definitions) if "enum" in definition else "object"
    kind = form.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(str(each) for each in kind)
    return (
        f"list of {_type(form['items'], definitions)}" if kind == "array" and "items" in form else str(kind)
    )


def _meaning(form: Mapping[str, Any]) -> str:
    told = {key: form[key] for key in _BOUNDS if key in form}
    limits = ["not empty"] if told.get("minLength") == 1 else []
    limits += [_BOUNDS[key].format(value) for key, value in told.items() if (key, value) != ("minLength", 1)]
    bounds = f" ({', '.join(limits)})" if limits else ""
    return f"{form.get('description', '').replace(chr(10), ' ')}{bounds}".strip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
