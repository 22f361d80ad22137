"""Client input: requests of a running call to its client, such as elicitation.

| client | way |
|---|---|
| 2026-07-28 | `RoundTrips`: the call ends with the requests and is made again with the responses |
| before | `LiveRequests`: the client is asked while the call is open |
| one that waits for a task | `task_board.TaskCall`: the task says what it needs, `tasks/update` brings it |

A function that fetches input may run again from its beginning for each round: everything before its last
input must be idempotent.
"""

from __future__ import annotations

import json
import logging
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    ListRootsResult,
)
from mcp_types.methods import INPUT_REQUIRED_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from loom_core.errors import LoomError, unwrap_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server import ServerRequestContext
    from mcp.server.session import ServerSession
    from mcp_types import InputRequest, InputResponse, RequestId

__all__ = [
    "ClientInput",
    "InputRequired",
    "InputUnavailableError",
    "LiveRequests",
    "RoundTrips",
    "client_input_of",
    "input_required",
    "response_to",
]

_log = logging.getLogger(__name__)


class ClientInput(Protocol):
    """Interface for requests to the client of a call."""

    @property
    def available(self) -> bool:
        """Whether requests can be sent at all; the client's capabilities say which."""
        ...

    @property
    def holds_call(self) -> bool:
        """Whether the call stays open while the client answers: it must be done before hosts give up."""
        ...

    @property
    def kept(self) -> dict[str, str]:
        """State that the function keeps between its runs: it gets it back with the client's responses.

        For example the id of a run that it has started. Set it before the first fetch; it is sent sealed.
        """
        ...

    async def fetch(
        self, requests: Mapping[str, InputRequest], *, deadline: float
    ) -> Mapping[str, InputResponse]:
        """Send requests to the client, and return one response for each.

        Args:
            requests: the requests, by names that are unique in the call.
            deadline: seconds that the client has.

        Raises:
            TimeoutError: not all responses came in time.
            InputUnavailableError: the client refuses to answer.
            InputRequired: the call must end here, and is repeated with the responses. Do not catch it.
        """
        ...


class InputUnavailableError(LoomError):
    """The client does not answer, or is not available."""


class InputRequired(Exception):  # noqa: N818 - no error: the call ends with a question
    """The call ends with requests to the client, which repeats it with the responses."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__(f"input is required: {', '.join(result.input_requests or ())}")
        self.result = result


def client_input_of(ctx: ServerRequestContext[Any, Any]) -> ClientInput:
    """Create the client input for the protocol version of a call."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return RoundTrips(ctx.params or {}, available=ctx.method in INPUT_REQUIRED_METHODS)
    return LiveRequests(ctx.session, ctx.request_id)


def input_required(error: Exception) -> InputRequiredResult | None:
    """Return the result of a call that ended because it needs input; None for a real error."""
    error = unwrap_group(error)
    return error.result if isinstance(error, InputRequired) else None


class RoundTrips:
    """Client input by multiple round trips (SEP-2322). The request state carries earlier responses.

    The state is sealed when it is sent and verified when it returns, see `request_state`: this server has
    written it for this very call. A response without a state is accepted, too: the client speaks for its user
    either way.
    """

    def __init__(self, params: Mapping[str, Any], *, available: bool = True) -> None:
        self._params = params
        self._taken: dict[str, InputResponse] = {}
        self._available = available
        self._kept: dict[str, str] | None = None

    @property
    def holds_call(self) -> bool:
        """See `ClientInput.holds_call`."""
        return False

    @property
    def available(self) -> bool:
        """Whether a result of this method may ask for input."""
        return self._available

    @property
    def kept(self) -> dict[str, str]:
        """See `ClientInput.kept`."""
        if self._kept is None:
            self._kept = dict(self._state.get("kept", {}))
        return self._kept

    async def fetch(
        self, requests: Mapping[str, InputRequest], *, deadline: float
    ) -> Mapping[str, InputResponse]:
        """See `ClientInput.fetch`."""
        given: Mapping[str, Any] = self._params.get("inputResponses") or {}
        missing: dict[str, InputRequest] = {}
        now = time.time()
        for name, request in requests.items():
            if name in self._taken:
                raise ValueError(f"{name!r} is asked for twice in one call")
            if name in self._state["answers"]:
                self._taken[name] = response_to(request, name, self._state["answers"][name])
            elif name not in given:
                missing[name] = request
            elif now - self._state["asked"].get(name, now) > deadline:
                raise TimeoutError
            else:
                self._taken[name] = response_to(request, name, given[name])
        if not missing:
            return {name: self._taken[name] for name in requests}
        state = {
            "answers": {name: _wire(response) for name, response in self._taken.items()},
            "asked": {name: self._state["asked"].get(name, now) for name in missing},
            "kept": self.kept,
        }
        raise InputRequired(InputRequiredResult(input_requests=missing, request_state=json.dumps(state)))

    @cached_property
    def _state(self) -> dict[str, dict[str, Any]]:
        state = self._params.get("requestState")
        try:
            known: object = json.loads(state) if state else None
        except ValueError:
            known = None
        match known:
            case {"answers": dict(), "asked": dict()}:
                return cast("dict[str, dict[str, Any]]", known)
            case _:  # the first round, or the state of another version of this server
                return {"answers": {}, "asked": {}}


class LiveRequests:
    """Client input of the handshake era: requests to the client during its own request."""

    def __init__(self, session: ServerSession, request_id: RequestId | None) -> None:
        self._session = session
        self._request_id = request_id
        self.kept: dict[str, str] = {}

    @property
    def holds_call(self) -> bool:
        """See `ClientInput.holds_call`."""
        return True

    @property
    def available(self) -> bool:
        """Whether the transport can carry a request to the client."""
        return self._session.can_send_request and self._request_id is not None

    async def fetch(
        self, requests: Mapping[str, InputRequest], *, deadline: float
    ) -> Mapping[str, InputResponse]:
        """See `ClientInput.fetch`. One after the other: there is one user."""
        responses: dict[str, InputResponse] = {}
        with anyio.fail_after(deadline):
            for name, request in requests.items():
                responses[name] = await self._ask(name, request)
        return responses

    async def _ask(self, name: str, request: InputRequest) -> InputResponse:
        metadata = ServerMessageMetadata(related_request_id=self._request_id)
        try:
            return await self._session.send_request(request, _response_type(request), metadata=metadata)
        except (MCPError, ValidationError) as error:
            reason = error.message if isinstance(error, MCPError) else "its answer cannot be read"
            _log.info("the client did not answer %r: %s", name, reason)
            raise InputUnavailableError(
                f"The client did not answer {request.method}: {reason}.",
                advice="Ask the user in the conversation.",
            ) from error


def response_to(request: InputRequest, name: str, given: object) -> InputResponse:
    """Parse a client's reply as the response to a request.

    Raises:
        MCPError: the reply is not a response to the request (-32602).
    """
    try:
        return _response_type(request).model_validate(given, by_name=False)
    except ValidationError as error:
        raise MCPError(
            code=INVALID_PARAMS, message=f"inputResponses.{name} is not an answer to {request.method}."
        ) from error


def _response_type(request: InputRequest) -> type[InputResponse]:
    if isinstance(request, ElicitRequest):
        return ElicitResult
    if isinstance(request, CreateMessageRequest):
        return CreateMessageResultWithTools if request.params.tools else CreateMessageResult
    return ListRootsResult


def _wire(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
