"""Callbacks that answer a server's own requests: elicitation and sampling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from loom_core.tools.interface import AskFunction

__all__ = ["Callbacks", "SampleFunction", "SamplingRequest", "SamplingResult", "SamplingTurn"]


@dataclass(frozen=True, slots=True)
class SamplingTurn:
    """One message of a sampling request."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """Sampling request of a server for a language model.

    Attributes:
        origin: id of the server.
        turns: the conversation, texts only.
        system: the system prompt that it asks for; may be empty.
        max_tokens: maximum length of the answer.
        temperature: the temperature that it asks for, or None.
        stop: stop sequences.
    """

    origin: str
    turns: tuple[SamplingTurn, ...]
    system: str = ""
    max_tokens: int = 0
    temperature: float | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingResult:
    """Answer of a language model, and the model's name."""

    text: str
    model: str


SampleFunction: TypeAlias = Callable[[SamplingRequest], Awaitable[SamplingResult]]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Callbacks that answer a server's own requests: elicitation and sampling.

    Attributes:
        ask: asks the user. Without it, elicitation is not declared as a capability, so a call's own `ask` is
            not used either.
        sample: asks a language model; used only for servers whose configuration allows it (`sampling`).
        seconds: timeout of an answer; after it the question counts as cancelled.
    """

    ask: AskFunction | None = None
    sample: SampleFunction | None = None
    seconds: float = 300.0
