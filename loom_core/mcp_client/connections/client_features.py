"""Client features of one connection: elicitation, sampling, roots and logging."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio

from loom_core.errors import LoomError
from loom_core.keys import redact
from loom_core.mcp_client.callbacks import SamplingRequest, SamplingTurn
from loom_core.tools.interface import Question, QuestionAnswer

if TYPE_CHECKING:
    import mcp_types
    from mcp.client import ClientRequestContext

    from loom_core.mcp_client.callbacks import Callbacks
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.tools.interface import AskFunction

__all__ = ["ActiveCall", "CallClock", "ClientFeatures"]

_log = logging.getLogger(__name__)

_MAX_QUESTIONS = 8  # open at the same time; a person answers one
_LOG_CHARACTERS = 1000


@dataclass(eq=False, slots=True)
class ActiveCall:
    """A call under way: its clock, and the handler of the server's questions about it."""

    clock: CallClock
    ask: AskFunction | None = None


_current: ContextVar[ActiveCall | None] = ContextVar("mcp_call", default=None)


@dataclass(slots=True)
class ClientFeatures:
    """Handlers of the requests that one server sends to its client.

    Attributes:
        config: the server; it says whether sampling is allowed, and which roots are announced.
        callbacks: answer the requests.
    """

    config: ServerConfig
    callbacks: Callbacks
    _calls: dict[ActiveCall, None] = field(default_factory=dict["ActiveCall", None])
    _open: int = 0

    @contextmanager
    def during(self, call: ActiveCall) -> Generator[None]:
        """Assign the server's questions to this call while the block lasts."""
        self._calls[call] = None
        token = _current.set(call)
        try:
            yield
        finally:
            _current.reset(token)
            del self._calls[call]

    def options(self) -> Mapping[str, Any]:
        """Return the callbacks of the SDK's client; a missing one is not declared as a capability."""
        told: dict[str, Any] = {"logging_callback": self._note}
        if _log.isEnabledFor(logging.DEBUG):
            told["log_level"] = "debug"
        if self.callbacks.ask is not None:
            told["elicitation_callback"] = self._elicit
        if self.callbacks.sample is not None and self.config.sampling:
            told["sampling_callback"] = self._sample
        if self.config.roots:
            told["list_roots_callback"] = self._roots
        return told

    async def _elicit(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        from mcp_types import ElicitRequestURLParams, ElicitResult

        if isinstance(params, ElicitRequestURLParams):
            question = Question(params.message, url=params.url, origin=self.config.name)
        else:
            question = Question(
                params.message,
                schema=params.requested_schema,
                origin=self.config.name,
            )
        answer = await self._ask_user(question)
        content = dict(answer.content) if answer.action == "accept" and not question.url else None
        return ElicitResult(action=answer.action, content=content)

    async def _ask_user(self, question: Question) -> QuestionAnswer:
        """Ask the user; a timeout, or too many questions at once, is a `cancel`."""
        call = self._find_call()
        ask = (call.ask if call else None) or self.callbacks.ask
        if ask is None or self._open >= _MAX_QUESTIONS:
            return QuestionAnswer("cancel")
        with self._pause_clock(call), anyio.move_on_after(self.callbacks.seconds):
            try:
                return await ask(question)
            except LoomError as error:
                _log.warning("a question of %s was not answered: %s", self.config.name, error)
        return QuestionAnswer("cancel")

    def _find_call(self) -> ActiveCall | None:
        """Find the call that a question is about: by its task, or because there is only one."""
        call = _current.get()
        if call is not None and call in self._calls:
            return call
        return next(iter(self._calls)) if len(self._calls) == 1 else None

    @contextmanager
    def _pause_clock(self, call: ActiveCall | None) -> Generator[None]:
        """Stop the clock of the call, or of all if it is not known which it is."""
        stopped = [call.clock.pause()] if call else [each.clock.pause() for each in self._calls]
        for each in stopped:
            each.__enter__()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            for each in stopped:
                each.__exit__(None, None, None)

    async def _sample(
        self, context: ClientRequestContext, params: mcp_types.CreateMessageRequestParams
    ) -> mcp_types.CreateMessageResult | mcp_types.ErrorData:
        from mcp_types import INVALID_REQUEST, CreateMessageResult, ErrorData, TextContent

        sample = self.callbacks.sample
        turns = _turns(params)
        if sample is None or turns is None or self._open >= _MAX_QUESTIONS:
            what = "Only texts can be answered" if turns is None else "Too much is asked at once"
            return ErrorData(code=INVALID_REQUEST, message=what)
        request = SamplingRequest(
            self.config.name,
            turns,
            system=params.system_prompt or "",
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            stop=tuple(params.stop_sequences or ()),
        )
        why = f"no answer within {self.callbacks.seconds:g} s"
        with self._pause_clock(self._find_call()), anyio.move_on_after(self.callbacks.seconds):
            try:
                sampled = await sample(request)
                content = TextContent(type="text", text=sampled.text)
                return CreateMessageResult(role="assistant", content=content, model=sampled.model)
            except LoomError as error:
                why = error.message
        return ErrorData(code=INVALID_REQUEST, message=redact(why, self.config.secrets))

    async def _roots(self, context: ClientRequestContext) -> mcp_types.ListRootsResult:
        from mcp_types import ListRootsResult, Root
        from pydantic import FileUrl

        roots = [root.resolve() for root in self.config.roots]
        return ListRootsResult(roots=[Root(uri=FileUrl(root.as_uri()), name=root.name) for root in roots])

    async def _note(self, params: mcp_types.LoggingMessageNotificationParams) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            text = redact(str(params.data)[:_LOG_CHARACTERS], self.config.secrets)
            _log.debug("%s says (%s): %r", self.config.name, params.level, text)


def _turns(params: mcp_types.CreateMessageRequestParams) -> tuple[SamplingTurn, ...] | None:
    """Convert the messages, if they are texts only; else return None."""
    from mcp_types import TextContent

    turns: list[SamplingTurn] = []
    for message in params.messages:
        contents = message.content if isinstance(message.content, list) else [message.content]
        texts = [content.text for content in contents if isinstance(content, TextContent)]
        if len(texts) != len(contents):
            return None
        turns.append(SamplingTurn(message.role, "\n".join(texts)))
    return tuple(turns)


_MOST = 10  # times the seconds of a call that reports progress


class CallClock:
    """Timeout of a block, restarted by progress and paused while a person is asked.

    Use it as a context manager in the task that waits: after the timeout the block is cancelled, and `late`
    is True.

    Attributes:
        late: whether the block timed out.
    """

    def __init__(self, seconds: float) -> None:
        """Set the timeout of a block in seconds; with progress, it may take ten times as long in all."""
        self.late = False
        self._seconds = seconds
        self._left = seconds * _MOST
        self._paused_with = seconds  # what was left when the clock was stopped
        self._waits = 0
        self._since = 0.0
        self._scope = anyio.CancelScope()

    def __enter__(self) -> CallClock:
        self._scope.__enter__()
        self._since = anyio.current_time()
        self._scope.deadline = self._since + self._seconds
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        swallowed = self._scope.__exit__(kind, error, trace)
        self.late = self._scope.cancelled_caught
        return bool(swallowed)

    def restart(self) -> None:
        """Restart the timeout."""
        if self._waits:
            return
        now = anyio.current_time()
        self._left -= now - self._since
        self._since = now
        self._scope.deadline = now + min(self._seconds, max(self._left, 0.0))

    @contextmanager
    def pause(self) -> Generator[None]:
        """Pause the timeout while the block lasts."""
        if not self._waits:
            now = anyio.current_time()
            self._left -= now - self._since
            self._paused_with = self._scope.deadline - now
            self._scope.deadline = math.inf
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._since = anyio.current_time()
                self._scope.deadline = self._since + self._paused_with
