"""A local socket: who knows the secret is answered, everybody else is cut off."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.errors import PeerError
from loom_core.storage.local_socket import (
    MOST_BYTES,
    SocketAddress,
    Transport,
    default_transport,
    listen,
    remove_socket,
    request,
    serve_requests,
    socket_folder,
)

Answer = Callable[[bytes], Awaitable[bytes]]


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets of this test's own; its path is short whatever the test is called."""
    with tempfile.TemporaryDirectory(prefix="loom") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture(params=["unix", "tcp"])
def transport(request: pytest.FixtureRequest) -> Transport:
    return request.param


async def upper(body: bytes) -> bytes:
    return body.upper()


@asynccontextmanager
async def served(
    transport: Transport, answer: Answer = upper, **limits: float
) -> AsyncIterator[SocketAddress]:
    listener, address = await listen(transport)

    async def serve() -> None:
        await serve_requests(listener, address.secret, answer, **limits)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        yield address
        tasks.cancel_scope.cancel()
    remove_socket(address)


async def raw(address: SocketAddress) -> Any:
    if address.transport == "unix":
        return await anyio.connect_unix(address.place)
    return await anyio.connect_tcp("127.0.0.1", int(address.place))


async def cut_off(stream: Any) -> None:
    """Waits until the other side has closed; what it still says does not matter."""
    with anyio.fail_after(10), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await stream.receive()


async def test_a_request_is_answered(transport: Transport):
    async with served(transport) as address:
        assert await request(address, b"text") == b"TEXT"
        assert await request(address, "知识".encode()) == "知识".encode()


async def test_many_requests_at_once_get_their_own_answers(transport: Transport):
    found: dict[int, bytes] = {}

    async def one(n: int) -> None:
        found[n] = await request(address, f"n{n}".encode() * 10_000)

    async with served(transport) as address, anyio.create_task_group() as tasks:
        for n in range(100):
            tasks.start_soon(one, n)
    assert found == {n: f"N{n}".encode() * 10_000 for n in range(100)}


@pytest.mark.slow
async def test_an_answer_that_takes_long_is_waited_for_as_long_as_there_are_signs_of_life(
    transport: Transport,
):
    async def slow(body: bytes) -> bytes:
        await anyio.sleep(1.2)
        return body

    async with served(transport, slow, heartbeat=0.02) as address:
        assert await request(address, b"patience", silence=1) == b"patience"


async def test_an_answer_that_takes_longer_than_the_deadline_is_not_waited_for(transport: Transport):
    async def never(_: bytes) -> bytes:
        await anyio.sleep_forever()
        return b""

    async with served(transport, never, heartbeat=0.02) as address:
        with pytest.raises(PeerError, match="did not respond"):
            await request(address, b"?", silence=5, deadline=0.2)


async def test_who_asks_no_longer_ends_the_work_on_the_answer(transport: Transport):
    ended = anyio.Event()

    async def never(_: bytes) -> bytes:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return b""

    async with served(transport, never, heartbeat=0.02) as address:
        with pytest.raises(PeerError):
            await request(address, b"?", deadline=0.1)
        with anyio.fail_after(10):
            await ended.wait()


async def test_without_signs_of_life_the_peer_is_given_up(transport: Transport):
    listener, address = await listen(transport)  # no one accepts: a process that is stopped looks like this
    async with listener:
        with pytest.raises(PeerError, match="did not respond"):
            await request(address, b"?", silence=0.1)
    remove_socket(address)


async def test_where_no_one_listens_the_peer_has_gone(transport: Transport):
    async with served(transport) as address:
        pass
    with pytest.raises(PeerError, match="has gone"):
        await request(address, b"?")


async def test_a_peer_that_ends_in_the_middle_of_an_answer_has_gone(transport: Transport):
    started = anyio.Event()

    async def never(_: bytes) -> bytes:
        started.set()
        await anyio.sleep_forever()
        return b""

    async def end() -> None:
        await started.wait()
        serving.cancel_scope.cancel()

    listener, address = await listen(transport)

    async def serve() -> None:
        await serve_requests(listener, address.secret, never)

    async with anyio.create_task_group() as serving:
        serving.start_soon(serve)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            with anyio.CancelScope(shield=True), pytest.raises(PeerError, match="has gone"):
                await request(address, b"?")
    remove_socket(address)


@pytest.mark.hostile("other users of the machine")
async def test_without_the_secret_nothing_is_answered(transport: Transport):
    asked: list[bytes] = []

    async def note(body: bytes) -> bytes:
        asked.append(body)
        return b""

    async with served(transport, note) as address:
        with pytest.raises(PeerError, match="has gone"):
            await request(replace(address, secret="0" * 64), b"?")
        assert asked == []


@pytest.mark.hostile("other users of the machine")
async def test_a_stranger_at_the_address_is_told_nothing():
    """A port may have been taken over by anyone since its owner died."""
    heard = bytearray()

    async def stranger(stream: Any) -> None:
        async with stream:
            await stream.send(b"n" * 32)
            with suppress(anyio.EndOfStream):
                heard.extend(await stream.receive())
                await stream.send(b"p" * 32)
                heard.extend(await stream.receive())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, stranger)
        address = SocketAddress("tcp", str(port), "secret")
        with pytest.raises(PeerError, match="does not know the secret"):
            await request(address, b"a private question")
        tasks.cancel_scope.cancel()
    assert len(heard) == 64
    assert b"secret" not in heard
    assert b"private" not in heard


async def test_an_address_that_is_no_port_is_told():
    with pytest.raises(PeerError, match="not a port"):
        await request(SocketAddress("tcp", "seven", "s"), b"?")


async def test_a_peer_that_says_nothing_is_cut_off(transport: Transport):
    async with served(transport, peer_seconds=0.1) as address, await raw(address) as stream:
        await cut_off(stream)


async def test_a_peer_that_asks_nothing_once_it_has_proved_itself_is_cut_off(transport: Transport):
    from anyio.streams.buffered import BufferedByteReceiveStream

    from loom_core.storage.local_socket import _prove_to_listener

    async with served(transport, peer_seconds=0.1) as address, await raw(address) as stream:
        await _prove_to_listener(stream, BufferedByteReceiveStream(stream), address.secret)
        await cut_off(stream)


@pytest.mark.hostile("other users of the machine")
async def test_a_request_that_is_too_long_is_cut_off_before_it_is_read(transport: Transport):
    from anyio.streams.buffered import BufferedByteReceiveStream

    from loom_core.storage.local_socket import _prove_to_listener

    async with served(transport) as address, await raw(address) as stream:
        await _prove_to_listener(stream, BufferedByteReceiveStream(stream), address.secret)
        await stream.send((MOST_BYTES + 1).to_bytes(4, "big"))
        await cut_off(stream)
        assert await request(address, b"still there") == b"STILL THERE"


@pytest.mark.hostile("other users of the machine")
async def test_an_answer_that_is_too_long_is_not_read(transport: Transport):
    async with served(transport) as address:
        with pytest.raises(PeerError, match="too long"):
            await request(address, b"four", most=3)


@pytest.mark.hostile("other users of the machine")
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(said=st.lists(st.binary(max_size=200), max_size=5))
def test_whatever_a_stranger_says_the_next_request_is_answered(said: list[bytes]):
    async def run() -> None:
        async with served("unix", peer_seconds=1.0) as address:
            async with await raw(address) as stream:
                with suppress(anyio.BrokenResourceError):
                    for part in said:
                        await stream.send(part)
            assert await request(address, b"text") == b"TEXT"

    anyio.run(run)


async def test_a_unix_socket_is_where_no_one_else_can_go():
    async with served("unix") as address:
        path = anyio.Path(address.place)
        assert stat.S_IMODE((await path.parent.stat()).st_mode) == 0o700
        assert stat.S_IMODE((await path.stat()).st_mode) == 0o600
        assert len(address.place) < 104
    assert not await path.exists()
    assert default_transport() == "unix"


async def test_loopback_is_not_reached_from_elsewhere():
    listener, address = await listen("tcp")
    async with listener:
        assert listener.extra(anyio.abc.SocketAttribute.local_address)[0] == "127.0.0.1"
    assert address.secret not in repr(address)


@pytest.mark.hostile("other users of the machine")
def test_a_folder_that_others_can_enter_is_refused(runtime: Path):
    socket_folder().chmod(0o755)
    with pytest.raises(PeerError, match="only this user") as caught:
        socket_folder()
    assert "XDG_RUNTIME_DIR" in caught.value.advice
    socket_folder_of(runtime).chmod(0o700)
    assert socket_folder() == socket_folder_of(runtime)


def socket_folder_of(runtime: Path) -> Path:
    return runtime / f"loom-{os.getuid()}"


@pytest.mark.hostile("paths and links")
def test_a_link_to_a_folder_is_refused(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "r").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "r"))
    socket_folder_of(tmp_path / "r").symlink_to(runtime)
    with pytest.raises(PeerError, match="only this user"):
        socket_folder()


@pytest.mark.hostile("other users of the machine")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_someone_else_is_refused():
    os.chown(socket_folder(), 12345, -1)
    try:
        with pytest.raises(PeerError, match="only this user"):
            socket_folder()
    finally:
        os.chown(Path(os.environ["XDG_RUNTIME_DIR"]) / f"loom-{os.getuid()}", 0, -1)


@pytest.mark.hostile("other users of the machine")
def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("in the way", encoding="ascii")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(PeerError, match="cannot be made"):
        socket_folder()


def test_a_path_that_is_too_long_for_a_socket_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(PeerError, match="too long"):
        socket_folder()


@pytest.mark.hostile("other users of the machine")
def test_without_a_runtime_folder_the_one_for_temporary_files_is_taken(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(runtime))
    assert socket_folder() == socket_folder_of(runtime)


@pytest.mark.hostile("other users of the machine")
def test_only_sockets_of_our_own_folder_are_ever_removed(tmp_path: Path):
    ours = socket_folder() / "no-socket.sock"
    ours.write_text("a file", encoding="ascii")
    elsewhere = tmp_path / "s"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(elsewhere)[-100:] if len(str(elsewhere)) < 100 else str(elsewhere))
    for path in (ours, elsewhere, tmp_path / "nothing"):
        remove_socket(SocketAddress("unix", str(path), ""))
    remove_socket(SocketAddress("tcp", "80", ""))
    assert ours.exists()
    assert elsewhere.exists()
    listening.close()
    ours.unlink()
