"""Error mapping: the text for clients, and details for the log only."""

from __future__ import annotations

import logging
import secrets

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from loom_core.errors import InvalidInputError, LoomError, NotFoundError, unwrap_group
from loom_core.json_repair import well_formed
from loom_core.redaction import without_secrets

__all__ = ["error_text", "protocol_error"]

_SHOWN = 200  # characters of the failed operation, whose name may be a client's
_HALF = 4000  # characters at the begin and the end of a message, which may repeat what a client has sent

_log = logging.getLogger(__name__)


def error_text(error: Exception, where: str) -> str:
    """Return the error text for the caller: messages of Loom's errors; for others, a reference to the log.

    A long message is cut in the middle, so that its advice stays.

    Args:
        error: the error; a single error in an exception group is unwrapped.
        where: the failed operation, such as "tool `query`".
    """
    error, where = unwrap_group(error), where[:_SHOWN]
    if isinstance(error, LoomError):
        text = _shorten(str(error))
        _log.info("%s: %s", where, text)
        return well_formed(text)
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


def _shorten(text: str) -> str:
    """Redact a text, and cut its middle. A secret that a first, wider cut splits is not in the result."""
    if len(text) <= 2 * _HALF:
        return without_secrets(text)
    begin, end = without_secrets(text[: 2 * _HALF]), without_secrets(text[-2 * _HALF :])
    return f"{begin[:_HALF]} … {end[-_HALF:]}"
