"""Webhooks: JSON that another system posts to a server, outside of MCP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pydantic_core import from_json

from loom_core.errors import InvalidInputError, LoomError, NotFoundError, StoreError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Webhook", "WebhookFunction"]

WebhookFunction: TypeAlias = Callable[[Mapping[str, str], object], Awaitable[Mapping[str, object]]]
"""Takes the parameters of the query and the posted JSON (None for an empty body), and returns the answer. The
caller is `current_caller()`."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook, for tokens with the scope `write`.

    Attributes:
        path: its path, next to the MCP endpoint.
        function: called with each post.
    """

    path: str
    function: WebhookFunction

    async def serve(self, request: Request) -> Response:
        """Serve a post: 200 with the answer; 400 for invalid input, 404, or 503 to repeat it later."""
        body = await request.body()
        try:
            # Strictly: NaN, or half a surrogate pair, could be neither stored nor sent.
            posted: object = from_json(body, allow_inf_nan=False) if body else None
        except ValueError:
            return _refusal(400, "The body is not JSON.", "Post JSON, or nothing.")
        try:
            answer = await self.function(dict(request.query_params), posted)
        except RecursionError:
            return _refusal(400, "The body is nested too deeply.", "Post flatter JSON.")
        except NotFoundError as error:
            return _refusal(404, error.message, error.advice)
        except InvalidInputError as error:
            return _refusal(400, error.message, error.advice)
        except StoreError as error:
            return _refusal(503, error.message, error.advice)
        except LoomError as error:
            return _refusal(500, error.message, error.advice)
        return _json(dict(answer), 200)


def _refusal(status: int, message: str, advice: str) -> Response:
    return _json({"error": message, "advice": advice}, status)


def _json(content: object, status: int) -> Response:
    from starlette.responses import JSONResponse  # a server over stdio needs none

    return JSONResponse(content, status_code=status)
