"""A server for `providers.py`: answers of both formats that are ready beforehand. Prints its address."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

_WORDS = ("A ", "knowledge ", "graph ", "is ", "知识", "图谱", " of ", "facts", ", ", "linked")


def main() -> None:
    tokens = [_WORDS[number % len(_WORDS)] for number in range(int(sys.argv[1]))]
    answers = {
        ("/v1/chat/completions", True): (b"text/event-stream", completion_stream(tokens)),
        ("/v1/chat/completions", False): (b"application/json", completion(tokens[:300])),
        ("/v1/messages", True): (b"text/event-stream", message_stream(tokens)),
        ("/v1/messages", False): (b"application/json", message(tokens[:300])),
    }

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        media_type, answer = answers[scope["path"], bool(json.loads(body).get("stream"))]
        headers = [(b"content-type", media_type), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        server.run(sockets=[listening])


def _event(data: object, *, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


_USAGE = {"prompt_tokens": 900, "completion_tokens": 300, "total_tokens": 1200}


def completion(tokens: list[str]) -> bytes:
    """A whole answer of chat completions."""
    message = {"role": "assistant", "content": "".join(tokens)}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice], "usage": _USAGE}).encode()


def completion_stream(tokens: list[str]) -> bytes:
    """A streamed answer of chat completions, a token a chunk."""
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: dict[str, str], *, finish: str | None = None) -> bytes:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    parts = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": token}) for token in tokens)]
    end = [chunk({}, finish="stop"), _event({**head, "choices": [], "usage": _USAGE}), b"data: [DONE]\n\n"]
    return b"".join(parts + end)


_MESSAGE: dict[str, Any] = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 900, "output_tokens": 1},
}


def message(tokens: list[str]) -> bytes:
    """A whole answer of Anthropic messages."""
    content = [{"type": "text", "text": "".join(tokens)}]
    usage = {"input_tokens": 900, "output_tokens": 300}
    return json.dumps({**_MESSAGE, "content": content, "stop_reason": "end_turn", "usage": usage}).encode()


def message_stream(tokens: list[str]) -> bytes:
    """A streamed answer of Anthropic messages, a token an event."""

    def event(kind: str, **data: object) -> bytes:
        return _event({"type": kind, **data}, name=kind)

    deltas = [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": token}) for token in tokens
    ]
    begin = [
        event("message_start", message=_MESSAGE),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ]
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    end = [
        event("content_block_stop", index=0),
        event("message_delta", delta=stop, usage={"output_tokens": len(tokens)}),
        event("message_stop"),
    ]
    return b"".join(begin + deltas + end)


if __name__ == "__main__":
    main()
