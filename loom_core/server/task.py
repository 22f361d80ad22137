"""One task: where it stands, what it needs from its client, and what has come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import anyio

from loom_core.server.client_input import response_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import HandlerResult
    from mcp_types import ErrorData, InputRequest, InputResponse

__all__ = ["Task", "TaskStatus"]

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


@dataclass(eq=False, slots=True)
class _Question:
    """Something that a task needs from its client."""

    request: InputRequest
    response: InputResponse | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


@dataclass(eq=False, slots=True)
class Task:
    """One call that goes on as a task.

    Attributes:
        id: what the client knows it by; cannot be guessed.
        owner: id of the caller it belongs to; empty without authentication.
        status: where it stands.
        message: the same for people, or empty.
        result: of the call, when it is completed.
        error: why it failed.
        created: when it became a task.
        updated: when any of this changed last.
    """

    id: str
    owner: str
    created: datetime
    updated: datetime
    status: TaskStatus = "working"
    message: str = ""
    result: HandlerResult = None
    error: ErrorData | None = None
    _questions: dict[str, _Question] = field(default_factory=dict[str, _Question])
    _asked: set[str] = field(default_factory=set[str])

    @property
    def finished(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in {"completed", "failed", "cancelled"}

    @property
    def requests(self) -> dict[str, InputRequest]:
        """What it needs from its client now, by keys that are never used again."""
        return {key: question.request for key, question in self._questions.items()}

    def become(self, status: TaskStatus, *, message: str | None = None) -> None:
        """Note a change."""
        self.status = status
        self.message = self.message if message is None else message
        self.updated = datetime.now(UTC)

    def answer(self, key: str, given: object) -> None:
        """Take a response; one to nothing that is asked now is ignored.

        Raises:
            MCPError: it does not fit the request.
        """
        if question := self._questions.get(key):
            question.response = response_to(question.request, key, given)
            question.answered.set()
            self._close(key)

    async def fetch(
        self, requests: Mapping[str, InputRequest], *, deadline: float
    ) -> Mapping[str, InputResponse]:
        """See `ClientInput.fetch`."""
        asked = {self._key(name): _Question(request) for name, request in requests.items()}
        self._questions |= asked
        self.become("input_required")
        try:
            with anyio.fail_after(deadline):
                for question in asked.values():
                    await question.answered.wait()
        finally:
            for key in asked:
                self._close(key)
        pairs = zip(requests, asked.values(), strict=True)
        return {name: question.response for name, question in pairs if question.response is not None}

    def _key(self, name: str) -> str:
        key, number = name, 1
        while key in self._asked:
            number += 1
            key = f"{name}-{number}"
        self._asked.add(key)
        return key

    def _close(self, key: str) -> None:
        self._questions.pop(key, None)
        if not self._questions and self.status == "input_required":
            self.become("working")
