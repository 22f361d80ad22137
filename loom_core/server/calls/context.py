"""The context of a call for tools, prompts, resources and completions; and its progress messages."""

from __future__ import annotations

import inspect
import math
import time
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ClientCapabilities,
    MissingRequiredClientCapabilityErrorData,
)

from loom_core.json_repair import well_formed
from loom_core.server.auth.caller import Caller, current_caller
from loom_core.server.calls.client_input import client_input_of
from loom_core.server.calls.task_board import current_task_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server import ServerRequestContext
    from mcp.server.session import ServerSession

    from loom_core.server.calls.client_input import ClientInput
    from loom_core.server.calls.task_board import TaskCall

__all__ = ["Capability", "Progress", "ToolContext", "bind_call_context", "parameters", "progress"]

Capability = Literal["sampling", "roots", "elicitation"]
"""Capabilities a client may offer to a server; all else is an extension, named like `example.com/name`."""

T = TypeVar("T")

_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Context of the current call. A function gets it in a parameter of this type.

    Attributes:
        session: the SDK's session of this request; tools use `progress` rather than this.
        request_id: id of the request, unique on its connection only.
        protocol_version: the revision the client speaks, such as `2026-07-28`.
        capabilities: capabilities that the client has declared.
        client: name and version of the client, or empty if unknown; untrusted, for logs only.
        client_input: requests to the client; `elicitation.ask` and `elicitation.consent` use it.
        caller: the caller, with scopes.
        task: the call as one that may continue as a task, see `tasks.become_task`; None if it may not.
    """

    session: ServerSession = field(repr=False)
    request_id: str
    protocol_version: str
    capabilities: ClientCapabilities
    client: str
    client_input: ClientInput = field(repr=False)
    task: TaskCall | None = field(repr=False)
    _request: object = field(repr=False)
    caller: Caller = field(default_factory=current_caller)

    @classmethod
    def of(cls, ctx: ServerRequestContext[Any, Any]) -> ToolContext:
        """Create the context from the SDK's."""
        who = ctx.session.client_params
        task = current_task_call()
        return cls(
            session=ctx.session,
            request_id=str(ctx.request_id),
            protocol_version=ctx.protocol_version,
            capabilities=ctx.session.client_capabilities or ClientCapabilities(),
            client=f"{who.client_info.name} {who.client_info.version}" if who else "",
            client_input=task or client_input_of(ctx),
            task=task,
            _request=ctx.request,
        )

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the HTTP request, names in lower case, without credentials; empty over stdio."""
        given: Mapping[str, str] = getattr(self._request, "headers", {})
        return MappingProxyType({name: given[name] for name in given if name not in _SECRET_HEADERS})

    def can(self, capability: Capability | str) -> bool:
        """Return whether the client has declared a capability, or an extension by its identifier."""
        if "/" in capability:
            return capability in (self.capabilities.extensions or {})
        return getattr(self.capabilities, capability, None) is not None

    def require(self, capability: Capability | str) -> None:
        """Refuse the call unless the client has declared a capability or extension.

        For a tool that cannot work without it; use `can` if there is an alternative.

        Raises:
            MCPError: -32021, naming what is missing.
        """
        if self.can(capability):
            return
        missing: dict[str, object] = {capability: {}}
        if "/" in capability:
            missing = {"extensions": missing}
        data = MissingRequiredClientCapabilityErrorData(
            required_capabilities=ClientCapabilities.model_validate(missing)
        )
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"This call needs a client that has declared `{capability}`.",
            data=data.model_dump(mode="json", by_alias=True, exclude_none=True),
        )


def parameters(function: Callable[..., object]) -> dict[str, object]:
    """Return the parameters of a function with their annotations, None for none.

    Raises:
        NameError: an annotation names something that the function's module does not have.
    """
    hints = typing.get_type_hints(function)
    return {name: hints.get(name) for name in inspect.signature(function).parameters}


def bind_call_context(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """Wrap a function so that its first argument is the `ToolContext`, even if it does not use it.

    Raises:
        NameError: as for `parameters`.
    """
    wanted = [name for name, hint in parameters(function).items() if hint is ToolContext]

    def call(context: ToolContext, *args: object, **kwargs: object) -> Awaitable[T]:
        return function(*args, **kwargs, **dict.fromkeys(wanted, context))

    return call


_Send = Callable[[float, float | None, str | None], Awaitable[None]]


def progress(ctx: ToolContext, *, total: float | None = None) -> Progress:
    """Create the progress reporter of a call; it does nothing if the client did not ask for progress.

    Once the call has become a task, clients get it by polling the task.

    Args:
        ctx: the call.
        total: the value at which the work is done, if known.
    """
    return Progress(ctx.task.report if ctx.task else ctx.session.report_progress, total=total)


class Progress:
    """Progress reporter: values increase, and messages are rate-limited.

    The protocol requires increasing values, and clients reset their idle timers at each message. A value that
    has not increased is dropped, unless it comes with a new text: then it is raised by the smallest possible
    step. Messages closer together than `interval` are dropped too, except the one that reaches the total.
    """

    def __init__(
        self,
        send: _Send,
        *,
        total: float | None = None,
        interval: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._total = total
        self._interval = interval
        self._clock = clock
        self._value = -math.inf
        self._message = ""
        self._sent_at = -math.inf

    async def report(self, value: float, message: str = "") -> None:
        """Report progress.

        Args:
            value: progress in the unit of `total`; it may repeat or decrease, which is not shown.
            message: the current step, for people.
        """
        news = message not in ("", self._message)
        if value <= self._value and not news:
            return
        finished = self._total is not None and value >= self._total > self._value
        now = self._clock()
        if now - self._sent_at < self._interval and not finished:
            return
        self._value = value if value > self._value else math.nextafter(self._value, math.inf)
        self._message = message or self._message
        self._sent_at = now
        await self._send(self._value, self._total, well_formed(message) or None)
