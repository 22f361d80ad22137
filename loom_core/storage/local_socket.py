"""Local sockets between the processes of one user: one request and one response per connection.

A Unix-domain socket in a folder that no other user can enter, or a port of the loopback interface if there
are none. Mutual authentication comes first: both sides prove that they know a secret, so that neither another
user's process nor one that took over a dead owner's port can send or receive anything.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import stat
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
from anyio.abc import SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.stapled import MultiListener

from loom_core.errors import PeerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteStream, SocketStream

__all__ = [
    "MOST_BYTES",
    "SocketAddress",
    "Transport",
    "default_transport",
    "listen",
    "remove_socket",
    "request",
    "serve_requests",
    "socket_folder",
]

Transport = Literal["unix", "tcp"]
"""Transport of a local socket."""

MOST_BYTES = 64 << 20
"""Maximum length of a request or an answer."""

_LOOPBACK = "127.0.0.1"
_NONCE = 32
_PROOF = 32
_HEADER = 4
_LONGEST_PATH = 103  # the limit of macOS; Linux allows four more
_CONNECTIONS = 64

_GONE = (
    OSError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.IncompleteRead,
)
"""Exceptions of a closed connection; a deadline's `TimeoutError` is an `OSError`, too."""


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """Address of a listening process.

    Attributes:
        transport: the transport.
        place: path of the socket, or number of the port.
        secret: the shared secret.
    """

    transport: Transport
    place: str
    secret: str = field(repr=False)


def default_transport() -> Transport:
    """Return `unix` if Python supports it, else `tcp`."""
    return "tcp" if sys.platform == "win32" else "unix"


def socket_folder() -> Path:
    """Return the folder for this user's sockets; create it if it is missing. No other user can enter it.

    It is `loom-<user id>` under `$XDG_RUNTIME_DIR` or else the folder for temporary files, as the path of a
    socket must be short.

    Raises:
        PeerError: it belongs to another user, others can enter it, or its path is too long.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [runtime] if runtime and os.access(runtime, os.W_OK) else []
    path = Path(*places or [tempfile.gettempdir()]) / f"loom-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        state = path.lstat()
    except OSError as error:
        raise PeerError(f"The folder {path} for sockets cannot be made: {error.strerror}.") from error
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise PeerError(
            f"{path} is not a folder that only this user can enter.",
            advice="Remove it, or set XDG_RUNTIME_DIR to a folder of your own.",
        )
    if len(os.fsencode(_socket_path(path))) > _LONGEST_PATH:
        raise PeerError(
            f"The path of the folder {path} is too long for sockets.",
            advice="Set XDG_RUNTIME_DIR to a folder with a shorter path.",
        )
    return path


async def listen(transport: Transport) -> tuple[MultiListener[SocketStream], SocketAddress]:
    """Listen at a new address.

    Raises:
        PeerError: there is no safe place for a socket, see `socket_folder`.
        OSError: the system refuses.
    """
    secret = secrets.token_hex(32)
    if transport == "unix":
        path = _socket_path(socket_folder())
        listening = MultiListener([await anyio.create_unix_listener(path, mode=0o600)])
        return listening, SocketAddress(transport, str(path), secret)
    listener = await anyio.create_tcp_listener(local_host=_LOOPBACK, family=socket.AF_INET)
    port = listener.extra(SocketAttribute.local_port)
    return listener, SocketAddress(transport, str(port), secret)


def remove_socket(address: SocketAddress) -> None:
    """Remove the file of a socket without a listener.

    Only a socket in this user's own folder is ever removed, whatever the address says.
    """
    if address.transport != "unix":
        return
    path = Path(address.place)
    try:
        if path.parent == socket_folder() and stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    except (OSError, PeerError):
        return  # it is already gone


async def serve_requests(
    listener: MultiListener[SocketStream],
    secret: str,
    answer: Callable[[bytes], Awaitable[bytes]],
    *,
    peer_seconds: float = 5.0,
    heartbeat: float = 0.5,
) -> None:
    """Serve peers that know the secret, until cancelled.

    A peer that sends nothing, too much or invalid data is disconnected; nothing is allocated for it before
    its authentication.

    Args:
        listener: the listener.
        secret: the secret of the address.
        answer: handler of a request; it raises nothing.
        peer_seconds: timeout in seconds for a peer's request, and for the delivery of the response.
        heartbeat: seconds between two heartbeats while the handler runs.
    """
    places = anyio.Semaphore(_CONNECTIONS)

    async def serve(stream: SocketStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(peer_seconds):
                    await places.acquire()
                try:
                    await _serve(stream, secret, answer, peer_seconds=peer_seconds, heartbeat=heartbeat)
                finally:
                    places.release()
            except* (*_GONE, PeerError):
                pass  # only the peer is affected

    async with listener:
        await listener.serve(serve)


async def request(
    address: SocketAddress,
    body: bytes,
    *,
    silence: float = 2.0,
    deadline: float = 30.0,
    most: int = MOST_BYTES,
) -> bytes:
    """Send a request to the process at an address.

    Args:
        address: its address.
        body: the request, at most `MOST_BYTES` long.
        silence: timeout in seconds without a heartbeat.
        deadline: timeout in seconds for the complete response.
        most: maximum bytes of the response.

    Raises:
        PeerError: it is gone, does not know the secret, or does not respond in time.
    """
    try:
        with anyio.fail_after(deadline):
            with anyio.fail_after(silence):
                stream = await _connect(address)
            async with stream:
                received = BufferedByteReceiveStream(stream)
                with anyio.fail_after(silence):
                    await _prove_to_listener(stream, received, address.secret)
                    await _send(stream, body)
                while True:
                    with anyio.fail_after(silence):
                        size = await _size(received, most)
                    if size:
                        with anyio.fail_after(silence):
                            return await received.receive_exactly(size)
    except TimeoutError as error:
        raise PeerError("The other process did not respond in time.") from error
    except _GONE as error:
        raise PeerError(f"The other process has gone ({type(error).__name__}).") from error


def _socket_path(folder: Path) -> Path:
    return folder / f"{secrets.token_hex(8)}.sock"


async def _connect(address: SocketAddress) -> ByteStream:
    if address.transport == "unix":
        return await anyio.connect_unix(address.place)
    try:
        port = int(address.place)
    except ValueError as error:
        raise PeerError("The address of the other process is not a port.") from error
    return await anyio.connect_tcp(_LOOPBACK, port)


async def _serve(
    stream: SocketStream,
    secret: str,
    answer: Callable[[bytes], Awaitable[bytes]],
    *,
    peer_seconds: float,
    heartbeat: float,
) -> None:
    received = BufferedByteReceiveStream(stream)
    with anyio.fail_after(peer_seconds):
        await _prove_to_client(stream, received, secret)
        body = await received.receive_exactly(await _size(received, MOST_BYTES))

    async def live() -> None:
        while True:
            await anyio.sleep(heartbeat)
            with anyio.fail_after(peer_seconds):
                await _send(stream, b"")

    found = b""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live)
        found = await answer(body)
        tasks.cancel_scope.cancel()
    with anyio.fail_after(peer_seconds):
        await _send(stream, found)


async def _prove_to_listener(stream: ByteStream, received: BufferedByteReceiveStream, secret: str) -> None:
    """Authenticate to the listener, and verify the listener's proof."""
    theirs, ours = await received.receive_exactly(_NONCE), secrets.token_bytes(_NONCE)
    await stream.send(ours + _proof(secret, b"first", theirs + ours))
    if not hmac.compare_digest(
        await received.receive_exactly(_PROOF), _proof(secret, b"second", theirs + ours)
    ):
        raise PeerError("Another process listens there: it does not know the secret.")


async def _prove_to_client(stream: ByteStream, received: BufferedByteReceiveStream, secret: str) -> None:
    ours = secrets.token_bytes(_NONCE)
    await stream.send(ours)
    theirs = await received.receive_exactly(_NONCE)
    if not hmac.compare_digest(
        await received.receive_exactly(_PROOF), _proof(secret, b"first", ours + theirs)
    ):
        raise PeerError("The peer does not know the secret.")
    await stream.send(_proof(secret, b"second", ours + theirs))


def _proof(secret: str, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(secret.encode(), side + nonces, "sha256")


async def _send(stream: ByteStream, body: bytes) -> None:
    """Send a frame; an empty one is a heartbeat."""
    await stream.send(len(body).to_bytes(_HEADER, "big") + body)


async def _size(received: BufferedByteReceiveStream, most: int) -> int:
    size = int.from_bytes(await received.receive_exactly(_HEADER), "big")
    if size > most:
        raise PeerError(f"A message of {size:,} bytes is too long.")
    return size
