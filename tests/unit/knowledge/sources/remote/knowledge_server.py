"""An MCP server over stdio that answers a search in the way it is told to, as other people's servers do.

    knowledge_server.py HOW

It speaks JSON-RPC by hand, so that no SDK tidies up what it says.
"""

from __future__ import annotations

import json
import sys
from typing import Any

ROPE, SAIL = "Rope is made of hemp.", "麻绳用麻制成，很结实。"
LONG = (
    f"{'The town has a market and a church. ' * 80}\n\nThe harbour was opened in 1901.\n\n{'Trees. ' * 200}"
)
STRING = {"type": "string"}
ROWS = [{"id": "1", "title": "Rope", "url": "https://a.example/1", "text": ROPE, "score": 0.9},
        {"id": "2", "title": "麻绳", "url": "https://a.example/2", "text": SAIL, "score": 0.4}]  # fmt: skip
TITLES = [{"id": "long", "title": "Harbour", "url": "https://a.example/long"},
          {"id": "gone", "title": "Gone", "url": "https://a.example/gone"}]  # fmt: skip


def tool(name: str, *, read_only: bool = True, **properties: Any) -> dict[str, Any]:
    required = [key for key, schema in properties.items() if schema is STRING]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": read_only}}


def texts(*said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in said]}


def structured(value: Any) -> dict[str, Any]:
    return {**texts(json.dumps(value, ensure_ascii=False)), "structuredContent": value}


def fetch(id_: str) -> dict[str, Any]:
    if id_ == "long":
        return structured({"id": "long", "title": "Harbour", "text": LONG, "url": "https://a.example/long"})
    if id_ in {"plain", "empty"}:
        return texts(ROPE, SAIL) if id_ == "plain" else texts(" ")
    return {**texts(f"There is no {id_}."), "isError": True}


def resource(uri: str, text: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": text}}


ANSWERS: dict[str, Any] = {
    "structured": structured({"results": ROWS}),
    "json": texts(json.dumps({"data": {"items": ROWS}}, ensure_ascii=False)),
    "rows": texts(*(json.dumps(row, ensure_ascii=False) for row in ROWS)),
    "plain": texts(ROPE, SAIL),
    "wrapped": {**texts(ROPE), "structuredContent": {"result": ROPE}},
    "resources": {"content": [resource("note:rope", ROPE), resource("note:麻绳", SAIL)]},
    "titles": structured({"results": TITLES}),
    "refuses": {**texts("The index is being built."), "isError": True},
    "nothing": structured({"results": []}),
    "half": texts(json.dumps([{"id": "1", "text": "half \ud83d emoji"}])),
}


def answer(how: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "knowledge", "version": "1"},
        }  # fmt: skip
    if method == "tools/list":
        if how == "toolless":
            return {"tools": [tool("delete", read_only=False, id=STRING)]}
        tools = [tool("search", query=STRING, limit={"type": "integer", "maximum": 2})]
        return {"tools": [*tools, tool("fetch", id=STRING)] if how == "titles" else tools}
    if params["name"] == "fetch":
        return fetch(params["arguments"]["id"])
    if how == "echo":
        return texts(json.dumps(params["arguments"], ensure_ascii=False, sort_keys=True) + ".")
    return ANSWERS[how]


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if message["method"] in {"initialize", "tools/list", "tools/call"}:
            said: dict[str, Any] = {
                "result": answer(sys.argv[1], message["method"], message.get("params", {}))
            }
        else:
            said = {"error": {"code": -32601, "message": "Method not found"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
