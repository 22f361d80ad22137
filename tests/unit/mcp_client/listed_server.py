"""A server whose tools are whatever a file says, for the tests of `MCPTool` and `MCPToolRegistry`.

    listed_server.py FILE

FILE is JSON: `tools` (as on the wire), `page` (how many are listed at once), `structured` (the data of all
answers), `links` (more blocks of all answers), `result_ttl` (milliseconds), `resources` (address to text, to
`{"blob": …}`, or to null for one that is never answered), `prompts` (name to text), `hang` (never
answers). It is read again at each request. Every tool answers with its name, its arguments and which call of
this process it is; some names do more, see `_call`. It speaks JSON-RPC by hand, of the handshake era: so it
starts twenty times as fast as one with an SDK.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FILE = Path(sys.argv[1])
_calls = 0


def _says() -> dict[str, Any]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def _send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _initialize(_params: dict[str, Any]) -> dict[str, Any]:
    kinds = ["tools", *(kind for kind in ("resources", "prompts") if kind in _says())]
    return {
        "protocolVersion": "2025-11-25",
        "capabilities": {kind: {"listChanged": True} for kind in kinds},
        "serverInfo": {"name": "listed", "version": "1"},
    }


def _list_tools(params: dict[str, Any]) -> dict[str, Any]:
    says = _says()
    start = int(params.get("cursor", 0))
    end = start + says.get("page", 1000)
    page: dict[str, Any] = {"tools": says["tools"][start:end]}
    return page | ({"nextCursor": str(end)} if end < len(says["tools"]) else {})


def _call(params: dict[str, Any]) -> dict[str, Any] | None:
    global _calls
    _calls += 1
    name, arguments = params["name"], params.get("arguments") or {}
    told = json.dumps({"tool": name, "arguments": arguments, "calls": _calls}, ensure_ascii=False)
    result: dict[str, Any] = {"content": [{"type": "text", "text": told}], "isError": name == "fail"}
    result["content"] += _says().get("links", [])
    if (structured := _says().get("structured")) is not None:
        result["structuredContent"] = structured
    if (ttl := _says().get("result_ttl")) is not None:
        result["_meta"] = {"ttlMs": ttl}
    match name:
        case "announce":
            for _ in range(arguments.get("times", 1)):
                _send(method="notifications/tools/list_changed")
        case "die":
            os._exit(3)
        case "hang":
            return None
        case "picture":
            result["content"].append({"type": "image", "data": "cGljdHVyZQ==", "mimeType": "image/png"})
        case "progress":
            token = params["_meta"]["progressToken"]
            step = {"progressToken": token, "progress": 1, "total": 2, "message": "一半"}
            _send(method="notifications/progress", params=step)
        case _:
            pass
    return result


def _list_resources(_params: dict[str, Any]) -> dict[str, Any]:
    return {"resources": [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in _says()["resources"]]}


def _list_templates(_params: dict[str, Any]) -> dict[str, Any]:
    template = {"uriTemplate": "kb://手册/{章}", "name": "chapter", "description": "一章"}
    return {"resourceTemplates": [template]}


def _read_resource(params: dict[str, Any]) -> dict[str, Any] | None:
    content = _says()["resources"][params["uri"]]
    if content is None:
        return None
    return {
        "contents": [{"uri": params["uri"], **(content if isinstance(content, dict) else {"text": content})}]
    }


def _list_prompts(_params: dict[str, Any]) -> dict[str, Any]:
    asked = [{"name": "subject", "required": True}]
    return {
        "prompts": [
            {"name": name, "description": "怎么做", "arguments": asked} for name in _says()["prompts"]
        ]
    }


def _get_prompt(params: dict[str, Any]) -> dict[str, Any]:
    text = f"{_says()['prompts'][params['name']]} {params['arguments'].get('subject', '')}"
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


_ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "initialize": _initialize,
    "ping": lambda _params: {},
    "tools/list": _list_tools,
    "tools/call": _call,
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read_resource,
    "prompts/list": _list_prompts,
    "prompts/get": _get_prompt,
}


def _serve() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or _says().get("hang"):
            continue
        try:
            result = _ANSWERS[message["method"]](message.get("params") or {})
        except KeyError as error:
            _send(id=message["id"], error={"code": -32602, "message": f"There is no {error}"})
        else:
            if result is not None:
                _send(id=message["id"], result=result)


if __name__ == "__main__":
    _serve()
