"""A web page on its way from the process that fetched it to the one that reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import load_bytes
from loom_core.knowledge.ingest.loaders.web import web_name

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.loaders import LoadLimits
    from loom_core.knowledge.model import DocumentDraft

__all__ = ["Fetched", "is_fetched", "load_fetched"]

_MARK = b"\0"  # no JSON begins like this, as other payloads are


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of asking for a page.

    Attributes:
        data: the page as it was sent, unpacked.
        mime: media type that the server named, or empty.
        charset: encoding that the server named, or empty.
        refusal: why there is no page, or empty.
    """

    data: bytes = b""
    mime: str = ""
    charset: str = ""
    refusal: str = ""

    def payload(self) -> bytes:
        """All of it as the payload of a material."""
        return _MARK + json.dumps([self.mime, self.charset, self.refusal]).encode() + b"\n" + self.data


def is_fetched(payload: bytes) -> bool:
    """Whether a payload is a page."""
    return payload.startswith(_MARK)


def load_fetched(uri: str, payload: bytes, *, limits: LoadLimits) -> DocumentDraft:
    """Read a page. Blocks.

    Raises:
        DocumentError: there is none, or it cannot be read.
    """
    head, _, data = payload[len(_MARK) :].partition(b"\n")
    mime, charset, refusal = json.loads(head)
    if refusal:
        raise DocumentError(refusal)
    return load_bytes(
        data, uri=uri, name=web_name(uri, mime=mime, data=data), mime=mime, charset=charset, limits=limits
    )
