from __future__ import annotations

import gc
import json
import logging
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from loom_core.errors import ConfigError
from loom_core.server.serving.http_settings import HttpSettings
from loom_core.server.serving.run import serve
from tests.unit.server.sample import sample_server

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def collected():
    """Undoes what is meant for the whole life of a process."""
    switching, allocations = sys.getswitchinterval(), gc.get_threshold()
    interrupt = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, interrupt)
    sys.setswitchinterval(switching)
    gc.set_threshold(*allocations)
    gc.unfreeze()
    for name in ("mcp.server.streamable_http", "mcp.server.streamable_http_manager"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_an_interrupt_while_the_server_is_built_is_an_end_without_a_traceback():
    def build():
        assert not gc.isenabled()
        raise KeyboardInterrupt

    with pytest.raises(SystemExit, match="130"):
        serve(build, http=HttpSettings())

    assert gc.isenabled()


def test_a_thread_that_computes_gives_way_to_questions_at_once_and_seldom_searches_for_garbage():
    found: list[tuple[float, int]] = []

    def build():
        found.append((sys.getswitchinterval(), gc.get_threshold()[0]))
        raise KeyboardInterrupt

    with pytest.raises(SystemExit, match="130"):
        serve(build, http=HttpSettings())

    assert found == [(pytest.approx(0.0005), 5_000)]


def test_a_host_that_is_refused_is_a_configuration_error():
    with pytest.raises(ConfigError, match=r"does not listen on '0\.0\.0\.0'"):
        serve(sample_server, http=HttpSettings(host="0.0.0.0"))


def test_a_key_of_the_environment_that_is_too_short_is_told_at_the_start(monkeypatch):
    monkeypatch.setenv("LOOM_STATE_KEYS", f"{'a' * 32},hunter2")
    with pytest.raises(ConfigError, match="A key in LOOM_STATE_KEYS has fewer than 32"):
        serve(sample_server, http=HttpSettings(port=0))


def test_importing_the_entry_loads_nothing_that_could_print(sample_command):
    code = "import sys, loom_core.server.serving.run; print({'mcp', 'anyio', 'pydantic'} & set(sys.modules))"
    result = subprocess.run([sample_command[0], "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "set()\n"


def head_of(stream: socket.socket) -> str:
    """The head of an answer, in small letters."""
    data = b""
    while b"\r\n\r\n" not in data and (more := stream.recv(4096)):
        data += more
    return data.partition(b"\r\n\r\n")[0].decode().lower()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="stopped by a POSIX signal")
def test_a_server_with_many_sessions_and_open_streams_ends_in_order_and_tells_no_session_id(sample_command):
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "测", "version": "1"},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    command = [*sample_command, "http", "0"]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8") as process,
        ExitStack() as streams,
    ):
        assert process.stderr is not None
        line = next(line for line in process.stderr if "listening on" in line)
        address = urlsplit(line.split()[-1])

        def asked(head: str, content: bytes = b"") -> socket.socket:
            stream = socket.create_connection((address.hostname, address.port), timeout=20)
            streams.callback(stream.close)
            stream.sendall(f"{head}\r\nHost: {address.netloc}\r\n\r\n".encode() + content)
            return stream

        ids = []
        for _ in range(100):
            posted = asked(
                "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}",
                body,
            )
            (id_,) = (
                line.removeprefix("mcp-session-id: ")
                for line in head_of(posted).splitlines()
                if line.startswith("mcp-session-id: ")
            )
            ids.append(id_)
            opened = asked(
                f"GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\nMCP-Session-Id: {id_}\r\n"
                "MCP-Protocol-Version: 2025-11-25"
            )
            assert head_of(opened).startswith("http/1.1 200")
        process.terminate()
        rest = process.stderr.read()
        assert process.wait(20) == 0, "it was not ended by force"
    assert "ending by force" not in rest
    assert not [id_ for id_ in ids if id_ in rest]
