"""A server over stdio that is slow to start without working: it sleeps, then offers one tool.

    python -S benchmarks/waiting_server.py SECONDS

It speaks JSON-RPC by hand, of the handshake era, so that starting it costs the processor next to nothing.
"""

from __future__ import annotations

import json
import sys
import time

ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "waiting", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]},
}

if __name__ == "__main__":
    time.sleep(float(sys.argv[1]))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if (result := ANSWERS.get(message["method"])) is not None:
            answer["result"] = result
        else:
            answer["error"] = {"code": -32601, "message": "There is no such method."}
        print(json.dumps(answer), flush=True)
