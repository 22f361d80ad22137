"""Context of one turn: everything that is fixed while a message is processed.

The result of a turn is its `TurnOutcome`. Two parts of the context are mutable, and belong to it alone:
the conversation, which is saved to the journal, and the clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio

from loom_core.errors import LLMError
from loom_core.flow.policy.router import RouteMatch
from loom_core.flow.understanding.moments import situation_in
from loom_core.redaction import redact_log_text

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.responses.phrases import Phrases
    from loom_core.flow.runtime.runtime import FlowRuntime
    from loom_core.flow.turns.session import ConversationStore, FlowConversation, OperatorLine
    from loom_core.runs.host import RunHost
    from loom_core.runs.run import Run

__all__ = ["TurnClock", "TurnContext"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MAX_SECONDS = 44.0  # for all parts: clients give up a call after sixty


class TurnClock:
    """Clock of one turn: durations of its parts, and timeouts for models and sources.

    Args:
        since: arrival of the message, as `time.perf_counter`; by default now.

    Attributes:
        timings: duration of each part in seconds.
    """

    def __init__(self, *, since: float | None = None) -> None:
        self._until = (time.perf_counter() if since is None else since) + _MAX_SECONDS
        self.timings: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Generator[None]:
        """Measure a part of the turn."""
        began = time.perf_counter()
        yield
        self.timings[part] = time.perf_counter() - began

    def remaining(self, seconds: float) -> float:
        """Return the remaining part of a timeout."""
        return max(min(seconds, self._until - time.perf_counter()), 0.0)

    async def wait_for_model(
        self, part: Literal["decision", "answer"], asked: Awaitable[_T], *, seconds: float
    ) -> tuple[_T | None, str]:
        """Wait for a model; return None and the reason if it fails or exceeds the timeout."""
        found, problem, limit = None, "", self.remaining(seconds)
        with self.measure(part):
            with anyio.move_on_after(limit) as waiting:
                try:
                    found = await asked
                except LLMError as error:
                    problem = redact_log_text(error.message)
            if waiting.cancelled_caught:
                problem = f"The model took longer than {limit:.3g} s; `decision_seconds` may allow it more."
        if problem:
            _log.warning("no %s by the model: %s", part, problem)
        return found, problem


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """Everything that is fixed while a message of a conversation is processed.

    Attributes:
        runtime: runtime of the flow file.
        host: executes runs.
        conversations: all conversations.
        conversation: the session, locked in this process.
        message: the user's message.
        phrases: phrases in the language of the conversation.
        file: the flow file, localized in that language.
        clock: clock of the turn.
        key: the idempotency key of the message; empty for none.
        run_key: idempotency key of a run that is started: that of the message; for a further request of an
            earlier message, one made from the run it follows, so that it starts once even after a crash.
        late: ended runs whose results come first in the reply.
        lines: operators' messages that come first in the reply.
        unfinished: runs of the session that have not ended, the latest first.
        waiting: those of them that can get a message, because their flow exists; with questions to the user
            only.
        handed_over: the one of them that an operator has, or that waits for one.
        match: matches of the trigger patterns.
    """

    runtime: FlowRuntime
    host: RunHost
    conversations: ConversationStore
    conversation: FlowConversation
    message: str
    phrases: Phrases
    file: FlowFile
    clock: TurnClock
    key: str = ""
    run_key: str = ""
    late: tuple[Run, ...] = ()
    lines: tuple[OperatorLine, ...] = ()
    unfinished: tuple[Run, ...] = ()
    waiting: tuple[Run, ...] = ()
    handed_over: Run | None = None
    match: RouteMatch = field(default_factory=lambda: RouteMatch("none"))

    def situation(self) -> AbstractContextManager[None]:
        """Return a context in which what is said is understood in the time zone of the conversation."""
        zones = self.context.get("timezone"), self.file.basic_settings.timezone
        return situation_in(zones, self.phrases.language)

    @property
    def context(self) -> dict[str, Any]:
        """The variables of the conversation, with the file's as defaults."""
        return {**self.file.context, **self.conversation.context}
