"""Error mapping: the text for clients, and details for the log only."""

from __future__ import annotations

import logging
import secrets

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from loom_core.errors import InvalidInputError, LoomError, NotFoundError, unwrap_group
from loom_core.redaction import without_secrets
from loom_core.server.calls.wellformed import well_formed

__all__ = ["error_text", "protocol_error"]

_log = logging.getLogger(__name__)


def error_text(error: Exception, where: str) -> str:
    """Return the error text for the caller: messages of Loom's errors; for others, a reference to the log.

    Args:
        error: the error; a single error in an exception group is unwrapped.
        where: the failed operation, such as "tool `query`".
    """
    error = unwrap_group(error)
    if isinstance(error, LoomError):
        _log.info("%s: %s", where, error)
        return well_formed(without_secrets(str(error)))
    incident = secrets.token_hex(4)
    _log.error("%s failed unexpectedly (id %s)", where, incident, exc_info=error)
    return f"Internal error in {where}. The server's log says more under id {incident}."


def protocol_error(error: Exception, where: str, *, uri: str = "") -> MCPError:
    """Build the JSON-RPC error of a failed list or read; a fault of the caller is -32602 (SEP-2164)."""
    expected = isinstance(unwrap_group(error), NotFoundError | InvalidInputError)
    return MCPError(
        code=INVALID_PARAMS if expected else INTERNAL_ERROR,
        message=error_text(error, where),
        data={"uri": uri} if uri else None,
    )
