"""Server of the owner process: answer the other processes that have a knowledge base open."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from loom_core.errors import LoomError, PeerError
from loom_core.knowledge.rag.owner.protocol import (
    PROTOCOL,
    OwnerFailure,
    OwnerRefusal,
    OwnerReply,
    OwnerRequest,
    OwnerResult,
    decode,
    encode,
    loom_version,
)
from loom_core.observability.propagation import detach_context
from loom_core.storage.local_socket import MOST_BYTES, listen, remove_socket, serve_requests
from loom_core.storage.ownership import OwnerCard, read_card, remove_card, write_card

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from anyio.abc import SocketStream, TaskStatus
    from anyio.streams.stapled import MultiListener

    from loom_core.knowledge.rag.owner.protocol import PeerSettings

__all__ = ["OwnerServer"]

_log = logging.getLogger(__name__)


class OwnerServer:
    """Serves the owner's answers over a local socket, whose address is in `owner.json`.

    Without a socket a warning is logged, and the other processes search by themselves.

    Args:
        folder: the knowledge base's; this process holds its lock while it serves.
        settings: the program's name, and the kind of socket.
        digest: what must be equal on both sides for search, ask and embed; see `settings_digest`.
        answer: carries out a request; its result must be JSON-serializable.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: PeerSettings,
        digest: str,
        answer: Callable[[OwnerRequest], Awaitable[object]],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._digest = digest
        self._answer = answer
        self._scope: anyio.CancelScope | None = None
        self._card: OwnerCard | None = None

    @property
    def is_serving(self) -> bool:
        """Whether `serve` runs."""
        return self._scope is not None

    async def serve(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, or until `retire`.

        Args:
            task_status: started once others can ask.
        """
        begun = False
        with anyio.CancelScope() as scope, detach_context():  # each request says which trace it belongs to
            self._scope = scope
            try:
                listener = await self._announce()
                task_status.started()
                begun = True
                if listener is None:
                    await anyio.sleep_forever()
                else:
                    await serve_requests(listener, self._secret(), self._encode_reply)
            except* (OSError, anyio.BrokenResourceError) as failed:
                _log.warning("Other processes were not served any more: %s", failed.exceptions[0])
            finally:
                if self._scope is scope:
                    self.retire()
        if not begun:  # retired before it could begin
            task_status.started()

    def retire(self) -> None:
        """Stop serving and withdraw the address; called before the lock is released."""
        card, self._card = self._card, None
        if card is not None:
            remove_card(self._folder, card)
            remove_socket(card.address)
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.cancel()

    async def _announce(self) -> MultiListener[SocketStream] | None:
        """Open a listener and announce its address; None if there can be none."""
        if (last := read_card(self._folder)) is not None:
            remove_socket(last.address)  # of an owner that was killed: the lock is ours now
        try:
            listener, address = await listen(self._settings.transport)
        except (OSError, PeerError) as error:
            _log.warning("Other processes cannot be served, and answer by themselves: %s", error)
            return None
        self._card = OwnerCard(
            protocol=PROTOCOL,
            pid=os.getpid(),
            program=self._settings.program,
            version=loom_version(),
            since=time.time(),
            transport=address.transport,
            place=address.place,
            secret=address.secret,
        )
        try:
            write_card(self._folder, self._card)
        except OSError as error:
            _log.warning("Other processes cannot find this one, and answer by themselves: %s", error)
            await listener.aclose()
            return None
        return listener

    def _secret(self) -> str:
        if self._card is None:
            raise AssertionError("a listener has been announced")
        return self._card.secret

    async def _encode_reply(self, body: bytes) -> bytes:
        reply = await self._reply(body)
        try:
            encoded = encode(reply)
        except (TypeError, ValueError) as error:
            _log.warning("an answer is not JSON-serializable: %s", error)
            return encode(_refusal("The owner's answer is not JSON-serializable."))
        if len(encoded) > MOST_BYTES:
            return encode(_refusal("The owner's answer is too long."))
        return encoded

    async def _reply(self, body: bytes) -> OwnerReply:
        try:
            request = decode(OwnerRequest, body)
        except PeerError as error:
            return _refusal(error.message)
        if request.protocol != PROTOCOL:
            return _refusal(f"The owner speaks protocol {PROTOCOL}, not {request.protocol}.")
        if request.method not in {"wake", "status"} and request.settings != self._digest:
            return _refusal("The owner has other settings.")
        try:
            return OwnerReply(reply=OwnerResult(result=await self._answer(request)))
        except LoomError as error:
            return OwnerReply(
                reply=OwnerFailure(error=type(error).__name__, message=error.message, advice=error.advice)
            )
        except Exception:  # noqa: BLE001 - the outermost handler of a request
            _log.exception("answering %s to another process failed", request.method)
            return _refusal("The owner failed.")


def _refusal(reason: str) -> OwnerReply:
    return OwnerReply(reply=OwnerRefusal(refused=reason))
