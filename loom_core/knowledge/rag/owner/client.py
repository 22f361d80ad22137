"""Client of the owner process, which answers instead of this process."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from loom_core.errors import PeerError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.rag.owner.protocol import (
    PROTOCOL,
    OwnerReply,
    OwnerRequest,
    OwnerStatus,
    decode,
    encode,
    loom_version,
)
from loom_core.knowledge.retrieval.searcher import SearchAnswer
from loom_core.observability.propagation import inject_context
from loom_core.storage.local_socket import MOST_BYTES, request
from loom_core.storage.ownership import OwnerCard, read_card

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.interface import Channel
    from loom_core.knowledge.rag.owner.protocol import OwnerMethod, PeerSettings
    from loom_core.knowledge.retrieval.config import SearchRequest

__all__ = ["OwnerClient"]

_log = logging.getLogger(__name__)

_Found = TypeVar("_Found")
_ANSWER = TypeAdapter(SearchAnswer)
_ITEMS = TypeAdapter(list[KnowledgeItem])
_STATUS = TypeAdapter(OwnerStatus)
_ROWS = TypeAdapter(list[list[float]])
_NOTHING: TypeAdapter[None] = TypeAdapter(None)


class OwnerClient:
    """Asks the owner of a folder over its socket.

    Every method returns None if the owner has no answer: there is none, it does not answer in time, it has
    other settings, or the question is not JSON-serializable. The caller then searches by itself.

    Args:
        folder: the knowledge base's.
        settings: timeouts.
        digest: what must be equal on both sides, see `settings_digest`.
    """

    def __init__(self, folder: Path, *, settings: PeerSettings, digest: str) -> None:
        self._folder = folder
        self._settings = settings
        self._digest = digest
        self._avoided: OwnerCard | None = None
        self._avoided_until = 0.0

    async def search(self, request: SearchRequest) -> SearchAnswer | None:
        """Search as `GraphRAGKnowledgeBase.search` does; the options are without a reranker."""
        return await self._call("search", asdict(request), _ANSWER)

    async def ask(
        self,
        channel: Channel,
        query: str,
        *,
        limit: int,
        filters: dict[str, Any] | None,
        vector: NDArray[np.float32] | None,
    ) -> list[KnowledgeItem] | None:
        """Search one channel as `GraphRAGKnowledgeBase.ask` does."""
        given: object = None
        if vector is not None:
            import numpy as np

            given = np.asarray(vector, dtype=np.float32).tolist()
        params = {"channel": channel, "query": query, "limit": limit, "filters": filters, "vector": given}
        return await self._call("ask", params, _ITEMS)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32] | None:
        """Return vectors of questions."""
        rows = await self._call("embed", {"texts": list(texts)}, _ROWS)
        if rows is None:
            return None
        import numpy as np

        return np.array(rows, dtype=np.float32)

    async def wake(self) -> None:
        """Tell the owner that there is new work."""
        await self._call("wake", {}, _NOTHING)

    async def status(self) -> OwnerStatus | None:
        """Return the status of the work."""
        return await self._call("status", {}, _STATUS)

    async def _call(
        self, method: OwnerMethod, params: dict[str, Any], form: TypeAdapter[_Found]
    ) -> _Found | None:
        card = read_card(self._folder)
        if card is None or (card == self._avoided and time.monotonic() < self._avoided_until):
            return None
        if card.protocol != PROTOCOL or card.version != loom_version():
            return None
        body = self._encode_request(method, params)
        if body is None:
            return None
        settings = self._settings
        try:
            answer = await request(card.address, body, silence=settings.silence, deadline=settings.deadline)
            return form.validate_python(decode(OwnerReply, answer).result())
        except (PeerError, ValidationError) as error:
            _log.info(
                "%s runs in this process, as the owner (%d) did not answer: %s",
                method,
                card.pid,
                error,
            )
            self._avoided, self._avoided_until = card, time.monotonic() + settings.pause
            return None

    def _encode_request(self, method: OwnerMethod, params: dict[str, Any]) -> bytes | None:
        """Return the encoded request, or None if it would not round-trip."""
        asked = OwnerRequest(
            protocol=PROTOCOL, method=method, settings=self._digest, params=params, trace=inject_context()
        )
        try:
            body = encode(asked)
            # Values that JSON changes, such as a tuple in the filters, would change the request.
            faithful = json.loads(body.decode("utf-8", "surrogatepass"))["params"] == params
        except (TypeError, ValueError, RecursionError):
            return None
        return body if faithful and len(body) <= MOST_BYTES else None
