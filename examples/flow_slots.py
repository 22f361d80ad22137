"""A flow that offers the free times of an API, and offers them again when another customer was faster.

    uv run examples/flow_slots.py "I'd like to book" "at three" "the second one"

A small API of a barber's runs along in the same process: 15:00 is taken while the customer decides.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from loom_core.flow import FlowFile, WorkflowOrchestrator

MESSAGES = ["I'd like to book", "at three", "the second one"]
FREE = {"s1": "9:30", "s2": "11:00", "s3": "15:00", "s4": "16:30"}
FLOW = {
    "flow_id": "book",
    "name": "预约 / Appointment",
    "trigger_patterns": ["预约", "\\bbook\\b"],
    "input_schema": {
        "type": "object",
        "properties": {"slot": {"type": "string", "title": "时间 / time"}},
    },
    "steps": [
        {
            "stepId": "slots",
            "operation": "GET /slots",
            "outputs": {"free": "$response.body#/free"},
        },
        {
            "stepId": "time",
            "ask": {
                "question": "您想约哪个时间？ / Which time would you like?",
                "options": {"from": "$steps.slots.outputs.free", "value": "/id", "label": "/text"},
                "into": "slot",
            },
            "onFailure": [{"type": "end", "response": "今天约满了。 / Today is fully booked."}],
        },
        {
            "stepId": "book",
            "operation": {
                "method": "POST",
                "url": "/bookings",
                "failure": "{$response.body#/error}",
            },
            "onFailure": [{"type": "goto", "stepId": "slots", "criteria": ["$statusCode == 409"]}],
        },
    ],
    "response": "约好了：{$inputs.slot}。 / Booked: {$inputs.slot}.",
}


class Barber(BaseHTTPRequestHandler):
    """An API with free times; the first time that is booked has just been taken."""

    free = FREE

    def do_GET(self) -> None:
        """Answer with the free times."""
        self._answer(200, {"free": [{"id": id_, "text": text} for id_, text in self.free.items()]})

    def do_POST(self) -> None:
        """Book a time."""
        slot = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["slot"]
        if self.free is FREE:
            type(self).free = {id_: text for id_, text in FREE.items() if id_ != slot}
            taken = "这个时间刚刚被约走了。 / That time has just been taken."
            self._answer(409, {"error": taken})
        else:
            self._answer(201, {"slot": slot})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def barber() -> Generator[str]:
    """Run the API; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Today", (Barber,), {}))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


async def main(messages: list[str]) -> None:
    with barber() as url:
        config = FlowFile.model_validate({"flow_url": url, "flows": [FLOW], "net": {"allow": ["127.0.0.1"]}})
        async with WorkflowOrchestrator(config) as assistant:
            session = ""
            for message in messages:
                reply = await assistant.query(message, session_id=session)
                session = reply.session_id
                print(f"> {message}\n{reply}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or MESSAGES))
