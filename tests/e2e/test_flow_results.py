"""A flow whose result comes after its message was answered: the conversation is told, once."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.test_flow_server import answered

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer

pytestmark = pytest.mark.slow

_RESULT = "Booked; your code is A1004."


class SlowApi:
    """An API of the house that answers a booking when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked = 0
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                api.asked += 1
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                api.let.wait(60)
                answer = json.dumps({"code": "A1004"}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def api() -> Generator[SlowApi]:
    made = SlowApi()
    yield made
    made.let.set()
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def start(stdio_server: Callable[..., StdioServer], home: Path, api: SlowApi) -> Callable[..., StdioServer]:
    home.mkdir()
    flow = {
        "flow_id": "book",
        "name": "Book an appointment",
        "trigger_patterns": ["book an appointment"],
        "endpoint": {"method": "POST", "url": f"{api.url}/book", "idempotent": True},
        "response": "Booked; your code is {$response.body#/code}.",
    }
    file = {"flows": [flow], "net": {"allow": ["127.0.0.1"]}}
    (home / "flow.json").write_text(json.dumps(file), encoding="utf-8")

    def start() -> StdioServer:
        return stdio_server([sys.executable, "-m", "loom_flow", "--home", str(home)], timeout=60.0)

    return start


def said(server: StdioServer, message: str, session_id: str = "", **more: Any) -> dict[str, Any]:
    return answered(server, "flow_chat", message=message, session_id=session_id, **more)


def ended(server: StdioServer, run_id: str) -> dict[str, Any]:
    return answered(server, "flow_status", run_id=run_id, wait_seconds=45)


def test_the_next_reply_begins_with_a_late_result_and_says_it_once(start: Any, api: SlowApi) -> None:
    server = start()
    begun = said(server, "book an appointment", wait_seconds=0)
    session = begun["session_id"]
    assert begun["status"] == "working"
    under_way = said(server, "is it booked now?", session, wait_seconds=0)
    assert under_way["text"] == "“Book an appointment” is in progress; I am still working on it."
    api.let.set()
    assert ended(server, begun["run_id"])["output"] == _RESULT
    told = said(server, "What are your opening hours?", session)
    assert told["text"].startswith(f"{_RESULT}\n\nI found nothing about that.")
    assert _RESULT not in said(server, "thanks", session)["text"]
    assert said(server, "is it booked now?", session)["text"] == _RESULT  # who asks is told again
    assert said(server, "what is my code?", session)["text"] == _RESULT
    assert api.asked == 1
    assert server.close_input() == 0


def test_the_question_itself_and_an_empty_message_are_answered_with_the_result(
    start: Any, api: SlowApi
) -> None:
    server = start()
    for message in ("is it booked now?", "", "办好了吗？"):
        api.let.clear()
        begun = said(server, "book an appointment", wait_seconds=0)
        api.let.set()
        ended(server, begun["run_id"])
        assert said(server, message, begun["session_id"])["text"] == _RESULT
        assert _RESULT not in said(server, "", begun["session_id"])["text"]
    assert server.close_input() == 0


def test_a_result_that_flow_chat_waited_for_is_not_told_again(start: Any, api: SlowApi) -> None:
    server = start()
    threading.Timer(1.5, api.let.set).start()  # longer than a message waits by itself
    done = said(server, "book an appointment")
    assert (done["status"], done["text"]) == ("completed", _RESULT)
    assert said(server, "thanks", done["session_id"])["text"] == "You are welcome."
    assert server.close_input() == 0


def test_a_server_that_was_killed_leaves_the_result_to_the_next_one(start: Any, api: SlowApi) -> None:
    server = start()
    begun = said(server, "book an appointment", wait_seconds=0)
    session = begun["session_id"]
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(30)
    api.let.set()
    second = start()
    assert ended(second, begun["run_id"])["output"] == _RESULT
    second.process.send_signal(signal.SIGKILL)  # it has not told the conversation
    second.process.wait(30)
    third = start()
    assert said(third, "thanks", session)["text"] == f"{_RESULT}\n\nYou are welcome."
    assert third.close_input() == 0  # in good order: what was told is told
    fourth = start()
    assert said(fourth, "thanks", session)["text"] == "You are welcome."
    assert fourth.close_input() == 0


def test_a_client_that_waits_reads_the_result_in_the_notification(start: Any, api: SlowApi) -> None:
    server = start()
    begun = said(server, "book an appointment", wait_seconds=0)
    threading.Timer(1.0, api.let.set).start()
    call = {"name": "flow_status", "arguments": {"run_id": begun["run_id"], "wait_seconds": 45}}
    server.request("tools/call", {**call, "_meta": {"progressToken": "p"}})
    lines = [
        each["params"].get("message", "")
        for each in server.notifications
        if each["method"] == "notifications/progress"
    ]
    assert f"done: {_RESULT}" in lines, lines
    assert server.close_input() == 0
