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
        system: what it wants as system prompt; may be empty.
        max_tokens: how long the answer may be.
        temperature: what it wants, or None.
        stop: what ends the answer.
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
        ask: asks the user. If it is not given, the server learns that no user can be asked; a call's own
            `ask` is used only if it is given.
        sample: asks a language model; used only for servers whose configuration allows it (`sampling`).
        seconds: how long an answer may take; then the question counts as cancelled.
    """

    ask: AskFunction | None = None
    sample: SampleFunction | None = None
    seconds: float = 300.0
