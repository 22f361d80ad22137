"""A server that says of its tools what servers/*/contract.json says: what others read the contract from.

    recorded_server.py CONTRACT SURFACE

It speaks JSON-RPC by hand, of the handshake era, and so starts twenty times as fast as one with an SDK.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_NO_METHOD = {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    """Answer requests until the input ends."""
    contract = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "recorded", "version": "1"},
        },
        "ping": {},
        "tools/list": {"tools": contract[sys.argv[2]]["tools"]},
    }
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            method = request["method"]
            answer = {"result": results[method]} if method in results else _NO_METHOD
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
