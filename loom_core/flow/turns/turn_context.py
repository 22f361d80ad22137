"""Context of one turn: everything that is fixed while a message is processed.

What a turn produces is its `Outcome`. Two things that it is given change by it, each by its own methods
only: the conversation, which is kept in the journal, and the clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio

from loom_core.errors import LLMError
from loom_core.flow.policy.router import RouteMatch
from loom_core.redaction import without_assigned

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.responses.phrases import Phrases
    from loom_core.flow.runtime.runtime import FlowRuntime
    from loom_core.flow.turns.session import Conversation, Conversations
    from loom_core.runs.host import RunHost
    from loom_core.runs.run import Run

__all__ = ["TurnClock", "TurnContext"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MOST_SECONDS = 44.0  # all together: clients give up a call after sixty


class TurnClock:
    """Clock of one turn: durations of its parts, and timeouts for models and sources.

    Args:
        since: when the message came, as `time.perf_counter`; by default now.

    Attributes:
        timings: seconds that each part has taken.
    """

    def __init__(self, *, since: float | None = None) -> None:
        self._until = (time.perf_counter() if since is None else since) + _MOST_SECONDS
        self.timings: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Generator[None]:
        """Measure a part of the turn."""
        began = time.perf_counter()
        yield
        self.timings[part] = time.perf_counter() - began

    def left(self, seconds: float) -> float:
        """Return the remaining part of a timeout."""
        return max(min(seconds, self._until - time.perf_counter()), 0.0)

    async def wait_for_model(
        self, part: Literal["decision", "answer"], asked: Awaitable[_T], *, seconds: float
    ) -> tuple[_T | None, str]:
        """Wait for a model; return None and the reason if it fails or exceeds the timeout.

        Args:
            part: what it is asked for.
            asked: waits for it.
            seconds: how long that may take.
        """
        found, problem, limit = None, "", self.left(seconds)
        with self.measure(part):
            with anyio.move_on_after(limit) as waiting:
                try:
                    found = await asked
                except LLMError as error:
                    problem = without_assigned(error.message)
            if waiting.cancelled_caught:
                problem = f"The model took longer than {limit:.3g} s."
        if problem:
            _log.warning("no %s by the model: %s", part, problem)
        return found, problem


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """Everything that is fixed while a message of a conversation is processed.

    Attributes:
        runtime: made of the flow file.
        host: drives runs.
        conversations: of all sessions.
        conversation: the session, which nothing else in this process changes meanwhile.
        message: what the user says.
        phrases: how things are said, in the language of the conversation.
        file: the flow file, in the same language.
        clock: the time of the turn.
        key: the idempotency key of the message; empty for none.
        run_key: that of a run which is begun: of the message; for what an earlier message asked for, one that
            is made of the run it follows, so that it is begun once, whatever dies in between.
        late: runs that have ended, and whose result is said before anything else in the reply.
        unfinished: runs of the session that are not at their end, the latest first.
        waiting: those of them that can be given a message: their flow is there.
        match: what the trigger patterns say to the message.
    """

    runtime: FlowRuntime
    host: RunHost
    conversations: Conversations
    conversation: Conversation
    message: str
    phrases: Phrases
    file: FlowFile
    clock: TurnClock
    key: str = ""
    run_key: str = ""
    late: tuple[Run, ...] = ()
    unfinished: tuple[Run, ...] = ()
    waiting: tuple[Run, ...] = ()
    match: RouteMatch = field(default_factory=lambda: RouteMatch("none"))

    @property
    def context(self) -> dict[str, Any]:
        """The variables of the conversation, with the file's as defaults."""
        return {**self.file.context, **self.conversation.context}
