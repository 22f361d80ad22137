"""Stands in for a program on a page: `stand_in.py SOCKET NAME ARGUMENT…` has it run, see programs.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    address, *line = sys.argv[1:]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # closes the connection
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        request = {"line": line, "cwd": str(Path.cwd()), "env": {**os.environ}}
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        connection.sendall(json.dumps(request).encode() + b"\n")
        return int(connection.recv(4) or b"1")


if __name__ == "__main__":
    sys.exit(main())
