"""Protocol of processes that share a knowledge base: JSON, one request and one reply.

A request names the protocol; its `settings` is a digest that must be equal on both sides, so that the answer
is the same. The reply is a result, an error of Loom's as it was raised, or a refusal: then the requester
searches by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from loom_core.errors import ConfigError, EmbeddingError, InvalidInputError, NotFoundError, PeerError
from loom_core.storage.local_socket import Transport, default_transport

if TYPE_CHECKING:
    from loom_core.knowledge.retrieval.config import RAGConfig

__all__ = [
    "PROTOCOL",
    "OwnerFailure",
    "OwnerMethod",
    "OwnerRefusal",
    "OwnerReply",
    "OwnerRequest",
    "OwnerResult",
    "OwnerStatus",
    "PeerSettings",
    "decode",
    "encode",
    "loom_version",
    "settings_digest",
]

PROTOCOL = 4
"""Version of the protocol; goes up with every change of its messages or their meaning."""

OwnerMethod = Literal["search", "ask", "embed", "wake", "status"]
"""Methods of an owner."""

_Message = TypeVar("_Message", bound=BaseModel)
_OF_THE_CALLER = {
    kind.__name__: kind for kind in (InvalidInputError, NotFoundError, EmbeddingError, ConfigError)
}
"""Errors that the caller would get from any process; any other is the owner's own problem."""


class OwnerRequest(BaseModel):
    """A request of one process to the owner.

    Attributes:
        protocol: number of the protocol it is written in.
        method: the method to call.
        settings: see `settings_digest`.
        params: the arguments, by name.
        trace: the trace that it belongs to (`traceparent`), or empty.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: int
    method: OwnerMethod
    settings: str
    params: dict[str, Any] = {}
    trace: dict[str, str] = {}


class OwnerRefusal(BaseModel):
    """Reason why the owner does not answer."""

    refused: str


class OwnerFailure(BaseModel):
    """An error of the owner: the name of its class in `loom_core.errors`, and its message."""

    error: str
    message: str
    advice: str


class OwnerResult(BaseModel):
    """Result of a method, whatever it returns."""

    result: Any


class OwnerReply(BaseModel):
    """Reply of the owner."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reply: OwnerResult | OwnerFailure | OwnerRefusal

    def result(self) -> Any:  # noqa: ANN401 - its type depends on the method
        """Return the result.

        Raises:
            PeerError: the owner refused.
            InvalidInputError, NotFoundError, EmbeddingError, ConfigError: the owner raised it.
        """
        match self.reply:
            case OwnerResult(result=result):
                return result
            case OwnerFailure(error=name, message=message, advice=advice):
                raise _OF_THE_CALLER.get(name, PeerError)(message, advice=advice)
            case OwnerRefusal(refused=reason):
                raise PeerError(reason)


@dataclass(frozen=True, slots=True)
class OwnerStatus:
    """Status of the work.

    Attributes:
        problem: why work or a part of it is paused; or empty.
        embeds: whether vectors are made.
        stopped: why jobs are paused, if they wait for a language model that cannot be asked; or empty.
    """

    problem: str
    embeds: bool
    stopped: str = ""


def encode(message: OwnerRequest | OwnerReply) -> bytes:
    """Encode a message.

    Raises:
        TypeError: a value is not JSON-serializable.
        ValueError: it is circular.
    """
    # Texts of documents may hold lone surrogates, which strict UTF-8 cannot encode.
    plain = message.model_dump()
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def decode(kind: type[_Message], body: bytes) -> _Message:
    """Decode a message.

    Raises:
        PeerError: it is not such a message.
    """
    try:
        return kind.model_validate(json.loads(body.decode("utf-8", "surrogatepass")))
    except (ValueError, RecursionError, ValidationError) as error:
        raise PeerError(f"The other process sent an invalid {kind.__name__}.") from error


@cache
def loom_version() -> str:
    """Return the version of Loom that runs here."""
    return version("loom-mcp-core")


def settings_digest(config: RAGConfig, *, embeds: bool, extractor_id: str, reranks: bool) -> str:
    """Return a digest of the settings with which two processes give the same answers from the same store.

    Args:
        config: the settings of the knowledge base.
        embeds: whether there is an embedder; its id is in the store, which they share.
        extractor_id: id of the extractor; empty if there is none.
        reranks: whether there is a default reranker.
    """
    shaping = config.model_dump(
        mode="json",
        exclude={
            "waits": True,
            "vectors": True,
            "lexical": True,
            "graph": True,
            "extraction": {"confirm_tokens", "confirm_cost"},
        },
    )
    same = [loom_version(), shaping, embeds, extractor_id, reranks]
    return sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """Name of this process for its peers, and its timeouts.

    Attributes:
        program: its name, such as `loom-kb`, for diagnosis.
        transport: the kind of its socket, when it serves.
        silence: seconds without data from the owner after which the wait ends: the owner may be suspended,
            or the machine may be short of memory. This process then answers the question.
        deadline: seconds for a whole answer of the owner.
        pause: seconds before an owner that did not answer, or refused, is asked again.
    """

    program: str = "python"
    transport: Transport = field(default_factory=default_transport)
    silence: float = 2.0
    deadline: float = 30.0
    pause: float = 5.0
