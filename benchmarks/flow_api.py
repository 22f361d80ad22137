"""An API that `flow.py` asks, in a process of its own: answers at once, or as late as the path says.

    python benchmarks/flow_api.py

prints its port and ends with its standard input. `/order` answers at once, `/knowledge/SECONDS` after so many
seconds. Connections are kept. It does as little as an HTTP server can, so that the clients are what is
measured.
"""

from __future__ import annotations

import asyncio
import re
import sys

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ORDER = b'{"status": "ready", "text": "' + "可以来取".encode() + b'"}'
_KNOWN = b'{"data": [{"id": "hours", "title": "' + "营业时间".encode() + b'", "content": "9:30 - 19:00"}]}'


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer what comes by one connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if length := _LENGTH.search(head):
                await reader.readexactly(int(length[1]))
            path = head.split(b" ", 2)[1].partition(b"?")[0]
            body = _ORDER
            if path.startswith(b"/knowledge/"):
                await asyncio.sleep(float(path.rpartition(b"/")[2]))
                body = _KNOWN
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                % (len(body), body)
            )
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
