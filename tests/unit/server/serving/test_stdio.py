from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import textwrap
import threading

import anyio
import pytest

from loom_core.errors import ConfigError, StoreError
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.handshake import Introduction
from loom_core.server.serving.stdio import LineReader, Wire, claim_stdio, serve_stdio
from tests.e2e.jsonrpc import JsonRpcError, StdioServer
from tests.unit.server.sample import sample_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and descriptors"),
]

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


# In this process: the transport itself, over pipes.


def _readers(before):
    """The threads that read for a server and were not there before."""
    return [each for each in threading.enumerate() if each.name == "stdin" and each not in before]


class Pipes:
    """A wire, and the client's ends of it."""

    def __init__(self):
        reads, self.input = os.pipe()
        self.output, writes = os.pipe()
        self.wire = Wire(reads, writes, os.getppid())
        self._closed = set()

    def send(self, *messages):
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            os.write(self.input, line)

    def received(self):
        """Everything written so far; to be called when the server has ended."""
        os.set_blocking(self.output, False)
        data = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.output, 1 << 16):
                data += chunk
        return [json.loads(line) for line in data.decode().splitlines()]

    def line(self):
        """The next line that was written."""
        data = b""
        while not data.endswith(b"\n"):
            data += os.read(self.output, 1 << 16)
        return data

    def close(self, descriptor):
        if descriptor not in self._closed:
            os.close(descriptor)
            self._closed.add(descriptor)


@pytest.fixture
async def pipes():
    before = threading.enumerate()
    pipes = Pipes()
    yield pipes
    pipes.close(pipes.input)
    for thread in _readers(before):  # else one may read from what has the descriptor next
        # The test's loop runs meanwhile: one that hands over a line just now would wait for it for ever.
        await anyio.to_thread.run_sync(thread.join, 10)
    for descriptor in (pipes.output, pipes.wire.reads, pipes.wire.writes):
        pipes.close(descriptor)


@pytest.fixture
def stops():
    return []


@pytest.fixture
def serve(pipes, stops):
    """Serves the sample over the pipes until it ends by itself; gives what its lifespan did."""

    async def served(wire=pipes.wire, *, log=None, reader=None):
        log = [] if log is None else log
        with anyio.fail_after(10):
            await serve_stdio(
                sample_server(log),
                wire,
                reader=reader,
                on_stop=lambda: stops.append(list(log)),
                parent_interval=0.01,
            )
        return log

    return served


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture
def introduced(pipes):
    """Reads from the client before there is a server, and knows what that would tell of itself."""
    reader = LineReader(pipes.wire, Introduction(name="样本", version="1", title="Sample"))
    reader.start()
    return reader


async def test_a_handshake_is_answered_before_there_is_a_server_and_only_once(serve, pipes, introduced):
    pipes.send(INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}, LIST)
    told = json.loads(await anyio.to_thread.run_sync(pipes.line))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(reader=introduced))
        listed = json.loads(await anyio.to_thread.run_sync(pipes.line))
        pipes.close(pipes.input)

    assert (told["id"], told["result"]["serverInfo"]["name"]) == (0, "样本")
    assert (listed["id"], listed["result"]["tools"][0]["name"]) == (1, "query")
    assert pipes.received() == []


async def test_a_client_that_has_gone_before_its_handshake_was_answered_ends_serving(
    serve, pipes, introduced
):
    pipes.close(pipes.output)
    pipes.send(INITIALIZE, LIST)

    assert await serve(reader=introduced) == ["opened", "closed"]


async def test_the_end_of_input_ends_serving_in_good_order(serve, pipes, stops):
    pipes.send(INITIALIZE)
    pipes.close(pipes.input)

    assert await serve() == ["opened", "closed"]
    assert stops == [["opened"]]


async def test_an_end_of_input_before_any_request_ends_serving(serve, pipes):
    pipes.close(pipes.input)

    assert await serve() == ["opened", "closed"]


async def test_a_last_line_without_a_line_end_is_read(serve, pipes, caplog):
    caplog.set_level(logging.WARNING)
    pipes.send(b"unfinished")
    pipes.close(pipes.input)
    await serve()

    assert "ignored input that is not JSON-RPC: 'unfinished'" in caplog.text


async def test_a_mark_of_the_byte_order_is_no_part_of_a_message(serve, pipes, caplog):
    caplog.set_level(logging.WARNING)
    pipes.send(b"\xef\xbb\xbf" + json.dumps(INITIALIZE).encode() + b"\n")
    pipes.close(pipes.input)
    await serve()

    assert "ignored" not in caplog.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_serving_like_the_end_of_input(serve, number):
    log = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(log=log))
        while not log:
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        os.kill(os.getpid(), number)
    assert log == ["opened", "closed"]


async def test_the_death_of_the_parent_ends_serving(serve, pipes):
    orphaned = Wire(pipes.wire.reads, pipes.wire.writes, parent=-1)

    assert await serve(orphaned) == ["opened", "closed"]


@pytest.mark.parametrize("line", [INITIALIZE, {"jsonrpc": "1.0", "id": 1, "method": "x"}])
async def test_a_client_that_does_not_read_any_more_ends_serving(serve, pipes, line):
    pipes.close(pipes.output)
    pipes.send(*[line] * 10)

    assert await serve() == ["opened", "closed"]


async def test_input_that_cannot_be_read_ends_serving(serve, pipes, tmp_path, caplog):
    descriptor = os.open(tmp_path / "output-only", os.O_WRONLY | os.O_CREAT)
    try:
        assert await serve(Wire(descriptor, pipes.wire.writes, os.getppid())) == ["opened", "closed"]
    finally:
        os.close(descriptor)


async def test_input_that_comes_after_the_end_is_left_alone(serve, pipes):
    before = threading.enumerate()
    await serve(Wire(pipes.wire.reads, pipes.wire.writes, parent=-1))
    readers = _readers(before)
    pipes.send(b"late\n")
    for reader in readers:
        await anyio.to_thread.run_sync(reader.join, 5)

    assert pipes.received() == []
    assert not any(reader.is_alive() for reader in readers)


def test_a_server_may_run_outside_the_main_thread(serve, pipes):
    pipes.close(pipes.input)
    results = []
    thread = threading.Thread(target=lambda: results.append(anyio.run(serve)))
    thread.start()
    thread.join(10)

    assert results == [["opened", "closed"]]


async def test_a_lifespan_that_cannot_be_opened_is_raised_as_it_is(pipes):
    with pytest.raises(StoreError, match="a newer version"):
        await serve_stdio(unopenable_server(), pipes.wire)


def unopenable_server():
    @contextlib.asynccontextmanager
    async def lifespan():
        raise StoreError("The record was written by a newer version.")
        yield

    return LoomServer("unopenable", version="1", title="Unopenable", lifespan=lifespan)


@pytest.mark.hostile("MCP requests")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "\\ud800"}}\n',
        b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": 5}\n',
        b'{"jsonrpc": "1.0", "id": 7, "method": "tools/list"}\n',
        b'{"method": "tools/call", "params": '
        + b'{"id": "]\\"}", "a": ' * 2000  # a pipe takes 64 KB before someone reads
        + b"[1]"
        + b"}" * 2000
        + b', "id": 7}\n',
    ],
)
async def test_a_broken_request_is_answered_if_it_has_an_id(serve, pipes, line):
    pipes.send(line)
    pipes.close(pipes.input)
    await serve()

    (answer,) = pipes.received()
    assert (answer["id"], answer["error"]["code"]) == (7, -32600)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"garbage\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b'{"jsonrpc": "2.0"}\n',
        b'{"jsonrpc": "2.0", "id": {}, "method": "x"}\n',
        b'{"jsonrpc": "2.0", "id": true, "method": "x"}\n',
        b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "x"}\n',
        b"[" * 100_000 + b"\n",
        b'{"id": 7, "method": "x", "params": ' + b"[" * 100_000 + b"\n",
        b'{"id": 7, "method": "' + b'\\"' * 100_000 + b"\n",
    ],
)
async def test_what_is_no_request_at_all_is_passed_over(serve, pipes, line):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        await anyio.to_thread.run_sync(pipes.send, line, INITIALIZE)
        pipes.close(pipes.input)

    (answer,) = pipes.received()
    assert answer["id"] == 0


@pytest.fixture
def standard_descriptors():
    """Lets a test do as it likes with descriptors 0 and 1."""
    saved = [os.dup(0), os.dup(1)]
    yield
    for number, copy in enumerate(saved):
        os.dup2(copy, number)
        os.close(copy)


def test_claiming_leaves_an_empty_input_and_sends_output_to_standard_error(standard_descriptors, pipes):
    os.dup2(pipes.wire.reads, 0)
    os.dup2(pipes.wire.writes, 1)
    wire = claim_stdio()
    try:
        assert min(wire.reads, wire.writes) > 2
        assert os.read(0, 1) == b""
        assert os.path.sameopenfile(1, 2)
        assert not os.get_inheritable(wire.writes)
        os.write(wire.writes, b"x")
        assert os.read(pipes.output, 1) == b"x"
    finally:
        os.close(wire.reads)
        os.close(wire.writes)


def test_claiming_takes_no_standard_descriptor_for_its_copies(standard_descriptors, pipes):
    os.dup2(pipes.wire.writes, 1)
    error = os.dup(2)
    os.close(2)
    try:
        with pytest.raises(ConfigError):  # the copy of 0 must not have become 2
            claim_stdio()
    finally:
        os.dup2(error, 2)
        os.close(error)


def test_a_closed_standard_input_is_said_to_be_so(standard_descriptors):
    os.close(0)
    with pytest.raises(ConfigError, match="not usable: Bad file descriptor"):
        claim_stdio()


# As a process: everything together.


@pytest.fixture(scope="module", params=["legacy", "modern"])
def process(request, sample_command):
    """One server for each era, that many tests talk to."""
    with contextlib.closing(StdioServer(sample_command, era=request.param)) as server:
        yield server


def test_only_the_protocol_reaches_standard_output(process):
    result = process.call("chatter")
    process.request("tools/list")

    assert result["content"] == [{"type": "text", "text": "said it"}]
    for place in ("import", "tool"):
        for way in ("descriptor", "child"):
            assert f"{place}: {way}" in process.stderr


def test_both_eras_are_served_raw(process):
    tools = process.request("tools/list")["tools"]
    answer = process.call("query", query="你好", limit=1)
    document = process.request("resources/read", {"uri": "loom://产品文档/一"})

    assert tools[0]["name"] == "query"
    assert answer["structuredContent"] == {"hits": [{"title": "你好0"}]}
    assert document["contents"][0]["text"] == "你好，世界"


def test_unknown_methods_are_answered_with_an_error(process):
    with pytest.raises(JsonRpcError, match="-32601"):
        process.request("no/such/method")


def test_progress_reaches_the_client_before_the_result(process):
    process.request(
        "tools/call", {"name": "work", "arguments": {"steps": 2}, "_meta": {"progressToken": "p"}}
    )

    assert process.notifications[-1]["params"] == {
        "progressToken": "p",
        "progress": 2.0,
        "total": 2.0,
        "message": "step 2",
    }


def test_a_legacy_client_is_notified_of_changes_and_a_modern_one_only_if_it_listens(process):
    process.call("add", name="more")
    process.request("tools/list")
    if process.era == "legacy":
        process.wait_for_notification("notifications/tools/list_changed")
    else:
        assert "notifications/tools/list_changed" not in [
            message["method"] for message in process.notifications
        ]


@pytest.mark.hostile("MCP requests")
def test_ten_thousand_lines_of_garbage_are_survived(process):
    for number in range(10_000):
        process.send_raw(b"garbage \xff %d {]\n" % number)

    assert process.request("tools/list")["tools"]
    assert process.stderr.count("garbage") == 1


def test_the_end_of_input_ends_the_process_and_what_was_only_buffered_stays_off_the_wire(
    stdio_server, sample_command
):
    server = stdio_server(sample_command)
    server.send_raw(b"garbage\n" * 3)

    assert server.close_input() == 0
    assert "import: print" in server.stderr
    assert "3 lines of it were ignored" in server.stderr


@pytest.mark.parametrize(("era", "number"), [("legacy", signal.SIGTERM), ("modern", signal.SIGINT)])
def test_a_signal_ends_the_process_in_good_order_while_a_call_is_running(
    stdio_server, sample_command, era, number, tmp_path
):
    log = tmp_path / "log"
    server = stdio_server(sample_command, era=era, env={**os.environ, "SAMPLE_LOG": str(log)})
    server.send_request("tools/call", {"name": "wait", "arguments": {}})
    server.request("tools/list")

    assert server.terminate(number) == 0
    assert log.read_text().split() == ["opened", "closed"]


def test_a_thread_that_hangs_cannot_keep_the_process_alive(stdio_server, sample_command):
    server = stdio_server(sample_command, env={**os.environ, "SAMPLE_DEADLINE": "0.2"})
    server.send_request("tools/call", {"name": "hang", "arguments": {}})
    server.request("tools/list")

    assert server.terminate() == 1
    assert "ending by force" in server.stderr


def test_a_process_whose_parent_dies_ends_though_its_input_stays_open(stdio_server, sample_command, tmp_path):
    log = tmp_path / "log"
    parent = textwrap.dedent(
        """
        import pathlib, subprocess, sys, time
        subprocess.Popen(sys.argv[2:])
        while not pathlib.Path(sys.argv[1]).exists():
            time.sleep(0.01)
        """
    )
    server = stdio_server(
        [sys.executable, "-c", parent, str(log), *sample_command],
        env={**os.environ, "SAMPLE_LOG": str(log)},
        connect=False,
    )

    assert server.wait_for_exit() == 0  # of the parent; its output ends with the orphan's
    assert log.read_text().split() == ["opened", "closed"]
    assert "the parent process has ended" in server.stderr
