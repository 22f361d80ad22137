"""A small strict server of embeddings, with OpenAI's interface and Ollama's, for the real clients to ask."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping

    Message = MutableMapping[str, Any]

__all__ = ["EmbeddingServer", "Refusal", "vector_of"]


def vector_of(text: str, *, dimension: int = 4) -> list[float]:
    """What the server makes of a text, not of length 1: no two texts of a test are alike."""
    own = [float(len(text)), float(sum(map(ord, text)) % 997), 1.0]
    return (own + [0.5] * dimension)[:dimension]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is none.

    Attributes:
        status: HTTP status.
        message: what is wrong.
        headers: headers besides the usual ones.
    """

    status: int
    message: str = "not now"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class EmbeddingServer:
    """An ASGI application that answers `POST /v1/embeddings` and `POST /api/embed`, and enforces its limits.

    Attributes:
        dimension: length of the vectors.
        most_texts: how many texts a request may hold.
        longest: how many characters a text may have.
        encodings: what it knows of `encoding_format`.
        shortens: whether it knows `dimensions`.
        key: the bearer token that it wants, or empty.
        refusals: what the next requests get, one after the other.
        down: fails every request as a server does that cannot be reached.
        change: what becomes of the answers: another JSON value, or bytes to be sent as they are.
        requests: the bodies that were answered.
        headers: the headers of all requests.
    """

    dimension: int = 4
    most_texts: int = 2048
    longest: int = 10_000
    encodings: tuple[str, ...] = ("base64", "float")
    shortens: bool = False
    key: str = ""
    refusals: list[Refusal] = field(default_factory=list[Refusal])
    down: bool = False
    change: Callable[[dict[str, Any]], object] | None = None
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    @property
    def texts(self) -> list[str]:
        """Every text that was embedded, in the order of arrival."""
        return [text for request in self.requests for text in request["input"]]

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer one request (ASGI 3)."""
        if self.down:
            import httpx2

            raise httpx2.ConnectError("All connection attempts failed")
        content = bytearray()
        more = True
        while more:
            message = await receive()
            content += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        self.headers.append(headers)
        answer = self._answer(str(scope["path"]), json.loads(content), headers)
        status = answer.status if isinstance(answer, Refusal) else 200
        extra = answer.headers if isinstance(answer, Refusal) else dict[str, str]()
        if isinstance(answer, Refusal):
            answer = {"error": {"message": answer.message, "type": "invalid_request_error"}}
        # `json` writes NaN, which is no JSON; so do some servers.
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        lines = {"content-type": "application/json", "content-length": str(len(sent)), **extra}
        raw = [(name.encode(), value.encode()) for name, value in lines.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": sent})

    def _answer(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> object:
        if self.refusals:
            return self.refusals.pop(0)
        if (refusal := self._refusal(path, body, headers)) is not None:
            return refusal
        self.requests.append(body)
        vectors = [
            vector_of(text, dimension=body.get("dimensions", self.dimension)) for text in body["input"]
        ]
        answer: dict[str, Any] = {"model": body["model"]}
        if path == "/api/embed":
            answer["embeddings"] = vectors
        else:
            asked = body.get("encoding_format", "float")
            answer["object"] = "list"
            answer["data"] = [
                {"object": "embedding", "index": index, "embedding": _encoded(vector, asked)}
                for index, vector in enumerate(vectors)
            ]
        return answer if self.change is None else self.change(answer)

    def _refusal(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Refusal | None:
        texts = cast("list[str]", body["input"])
        if path not in {"/v1/embeddings", "/api/embed"}:
            return Refusal(404, f"there is nothing at {path}")
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            return Refusal(401, f"Incorrect API key provided: {headers.get('authorization')}")
        if body["model"] == "missing":
            return Refusal(404, 'model "missing" not found')
        if not texts or len(texts) > self.most_texts or not all(texts):
            return Refusal(400, f"`input` has to hold 1 to {self.most_texts} texts, and no empty one")
        if max(map(len, texts)) > self.longest:
            if path == "/api/embed" and body.get("truncate", True):
                return None
            return Refusal(400, "the input length exceeds the context length")
        if "dimensions" in body and not self.shortens:
            return Refusal(400, "this model does not know `dimensions`")
        if path != "/api/embed" and body.get("encoding_format", "float") not in self.encodings:
            return Refusal(400, "encoding_format is not supported")
        return None


def _encoded(vector: list[float], encoding: str) -> str | list[float]:
    if encoding == "float":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
