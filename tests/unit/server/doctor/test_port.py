"""The port: free, taken and by whom, or none at all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from loom_core.server.cli.health import Finding
from loom_core.server.doctor.port import PortHolder, port_holder, port_section

pytestmark = pytest.mark.slow

_LISTEN = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""

_ANSWER = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"status": "ok", "name": "loom-kb", "version": "9.9"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def listener(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """A process that listens on a port: its id, and the port."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", request.param], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def finding(host: str, port: int) -> Finding:
    [found] = port_section(host, port, program="loom-kb").findings
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_free_port_is_fine_and_stays_free():
    port = free_port()
    assert finding("localhost", port).severity == "ok"
    assert port_holder(port) is None
    assert finding("127.0.0.1", 0).severity == "ok"


@pytest.mark.parametrize("listener", [_LISTEN], indirect=True)
def test_a_port_that_is_taken_is_told_with_who_has_it(listener: tuple[int, int]):
    pid, port = listener
    found = finding("127.0.0.1", port)
    assert (found.code, found.severity) == ("port-taken", "warning")
    assert f"Port {port} is taken by" in found.message
    assert "loom-kb serve --http --port 0" in found.remedy
    if sys.platform == "linux":
        assert f"(process {pid})" in found.message
        assert "_LISTEN" not in found.message
        holder = port_holder(port)
        assert holder is not None
        assert (holder.pid, holder.program.startswith("python")) == (pid, True)


@pytest.mark.parametrize("listener", [_ANSWER], indirect=True)
def test_a_loom_server_on_the_port_is_fine(listener: tuple[int, int]):
    _, port = listener
    found = finding("127.0.0.1", port)
    assert (found.severity, found.message) == ("ok", f"loom-kb 9.9 serves on port {port} already.")


def test_what_is_no_port_or_no_address_of_this_machine_is_told():
    assert finding("127.0.0.1", 70_000).code == "port-unusable"
    found = finding("192.0.2.1", free_port())  # an address for documentation
    assert (found.code, found.severity) == ("port-unusable", "warning")


def test_a_holder_is_shown_with_its_process():
    assert str(PortHolder(os.getpid(), "python")) == f"python (process {os.getpid()})"
