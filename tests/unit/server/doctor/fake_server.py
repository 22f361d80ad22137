"""A small MCP server over stdio that misbehaves as its arguments say. Plain Python: it starts fast.

print       writes a line of its own before the protocol
binary      writes bytes that are no text, without a line end, at the end
endless     writes without end
sleep=N     waits so many seconds first
mute        never answers
stays       does not end at the end of its input
code=N      ends with this exit code
tools=a,b   these are its tools
modern=a,b  and these in the modern era
error       answers tools/list with an error
pages       lists its tools one by one
crash       ends at once, with a last word on standard error
env=NAME    has the value of a variable as its name
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

options = dict(argument.partition("=")[::2] for argument in sys.argv[1:])


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tools(params: dict[str, Any]) -> dict[str, Any]:
    chosen = "modern" if "_meta" in params and "modern" in options else "tools"
    names = [name for name in options.get(chosen, "ask").split(",") if name]
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    if "pages" not in options:
        return {"tools": listed}
    place = int(params.get("cursor", 0))
    rest = {"nextCursor": str(place + 1)} if place + 1 < len(listed) else {}
    return {"tools": listed[place : place + 1], **rest}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    info = {"name": os.environ.get(options.get("env", ""), "fake"), "version": "1"}
    if method == "initialize":
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}}
    if method == "server/discover":
        return {"result": {"_meta": {"io.modelcontextprotocol/serverInfo": info}, "capabilities": {}}}
    if "error" in options:
        return {"error": {"code": -32603, "message": "坏了"}}
    return {"result": tools(params)}


def main() -> None:
    print("fake server begins", file=sys.stderr, flush=True)  # noqa: T201
    if "crash" in options:
        sys.exit("ImportError: 没有模块")
    time.sleep(float(options.get("sleep", 0)))
    if "print" in options:
        print("Loading 模型 ...", flush=True)  # noqa: T201
    while "endless" in options:
        sys.stdout.write("x" * 65_536)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "mute" not in options:
            send({"method": "notifications/message", "params": {"level": "info", "data": "working"}})
            send({"id": message["id"], **answer(message["method"], message["params"])})
    if "binary" in options:
        sys.stdout.buffer.write(b"\x00\xffbye")
        sys.stdout.buffer.flush()
    while "stays" in options:
        time.sleep(1)
    sys.exit(int(options.get("code", 0)))


if __name__ == "__main__":
    main()
