"""What a fake model says, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import anyio

__all__ = ["Call", "Recorded", "Script", "Tokens", "Turn"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a model.

    Attributes:
        name: the tool.
        arguments: what it is called with; a text is sent as it is, for arguments that are no JSON object.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a vendor says an answer took.

    Attributes:
        input: of the request, with what was read from a cache.
        output: of the answer, reasoning included.
        reasoning: of these, for reasoning.
        cached: of the input, read from a cache.
    """

    input: int = 10
    output: int = 20
    reasoning: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer.

    What the model says:

    Attributes:
        text: the text.
        reasoning: what comes before it, in the vendor's own field or blocks.
        redacted: whether Anthropic also sends a block of thinking that nobody can read.
        calls: tool calls, behind the text.
        finish: why it ended, in the vendor's own word; empty for what is usual.
        usage: what it took; None where the vendor says nothing.
        piece: how many characters one event of a stream has.

    What goes wrong, for embeddings too:

    Attributes:
        status: an HTTP status other than 200 is an error in the vendor's own form.
        code: the vendor's code of that error; empty for what is usual.
        message: what that error says; empty for what is usual.
        headers: more headers of the answer, such as `retry-after`.
        body: is sent instead of an answer, in streams too: for what cannot be read.
        wait: nothing of the answer is sent before it is set. A stream has its headers before.
        cut_after: the connection breaks after so many bytes of the body.
        hang_after: nothing follows so many bytes of the body, until the client leaves.
        stream_error: an error in the stream, behind half of its events, that says this.
    """

    text: str = ""
    reasoning: str = ""
    redacted: bool = False
    calls: tuple[Call, ...] = ()
    finish: str = ""
    usage: Tokens | None = Tokens()
    piece: int = 4
    status: int = 200
    code: str = ""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    wait: anyio.Event | None = None
    cut_after: int | None = None
    hang_after: int | None = None
    stream_error: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request that came, whether or not it was accepted.

    Attributes:
        vendor: whose server was asked.
        path: of the address, without the vendor's prefix.
        headers: names in lower case; without those that hold a key.
        body: what was asked; empty where it was no JSON object.
    """

    vendor: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


Script: TypeAlias = Sequence[Turn] | Callable[[Recorded], Turn]
"""An answer for each request that is accepted, in order; or a function of the request."""
