"""Sealed request state of calls that need input (protocol version 2026-07-28).

A state that a client returns is untrusted: it may be old, changed, or another caller's. The SDK's boundary
encrypts the state and binds it to the call, its arguments, the caller and this server; this module provides
the keys, and loads neither keys nor cryptography before a call needs them.

A single process creates its own key. If several serve the same clients behind a load balancer, each must be
able to open what another has sealed: `state_keys` takes the keys from the environment, or from a
file in the home that the first of them makes.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mcp_types.methods import INPUT_REQUIRED_METHODS, is_input_required

from loom_core.errors import ConfigError
from loom_core.server.auth.caller import current_caller

if TYPE_CHECKING:
    from pathlib import Path

    from mcp.server import ServerRequestContext
    from mcp.server.context import CallNext, HandlerResult
    from mcp.server.request_state import RequestStateBoundary

__all__ = ["VARIABLE", "SealedState", "StateKeys", "keys_from_environment", "state_keys"]

VARIABLE = "LOOM_STATE_KEYS"
"""Keys for all workers, separated by commas: the first seals, all of them open."""

_FILE = "request-state.key"
_LEAST = 32  # characters of a key
_SECONDS = 3600.0  # lifetime of a state; each question has its own timeout

StateKeys = Callable[[], Sequence[str]]
"""Returns the keys, when the first state is sealed or opened; none for a key of this process alone."""

_log = logging.getLogger(__name__)


class SealedState:
    """Middleware: seal the state of every result that asks for input, and open it in the next call."""

    def __init__(self, audience: str, keys: StateKeys | None = None) -> None:
        """Prepare the middleware; nothing is loaded.

        Args:
            audience: the server's name: another server with the same keys refuses its states.
            keys: returns the keys.
        """
        self._audience = audience
        self._keys = keys

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message; answer -32602 to a state that this server has not sealed for this very call."""
        if ctx.method not in INPUT_REQUIRED_METHODS:
            return await call_next(ctx)
        if ctx.params is not None and ctx.params.get("requestState") is not None:
            return await self._boundary(ctx, call_next)
        result = await call_next(ctx)
        if not is_input_required(result):
            return result

        async def reply(_: ServerRequestContext[Any, Any]) -> HandlerResult:
            return result

        return await self._boundary(ctx, reply)

    @cached_property
    def _boundary(self) -> RequestStateBoundary:
        from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

        keys = list(self._keys() if self._keys else ()) or [secrets.token_hex(_LEAST)]
        security = RequestStateSecurity(
            keys=keys, ttl=_SECONDS, bind_principal=lambda _: current_caller().id or None
        )
        return RequestStateBoundary(security, default_audience=self._audience)


def state_keys(home: Path) -> Sequence[str]:
    """Return the keys that all workers share: from the environment, or else from a file in Loom's home.

    The file is made at the first call, readable by its owner only. Where it can neither be read nor made, a
    warning is logged and the process creates its own keys.

    Raises:
        ConfigError: a key in the environment or the file is too short to be one.
    """
    if keys := keys_from_environment():
        return keys
    path = home / _FILE
    try:
        return _check_keys([_load_shared_key(path)], str(path))
    except OSError as error:
        _log.warning("cannot keep the key of request states in %s: %s", path, error.strerror)
        return ()


def keys_from_environment() -> Sequence[str]:
    """Read the keys from `LOOM_STATE_KEYS`; a server checks them when it starts.

    Raises:
        ConfigError: one of them is too short to be one.
    """
    named = os.environ.get(VARIABLE, "")
    return _check_keys([key.strip() for key in named.split(",") if key.strip()], VARIABLE)


def _check_keys(keys: Sequence[str], where: str) -> Sequence[str]:
    if any(len(key) < _LEAST for key in keys):
        raise ConfigError(
            f"A key in {where} has fewer than {_LEAST} characters.",
            advice='Make one with: python -c "import secrets; print(secrets.token_hex(32))"',
        )
    return keys


def _load_shared_key(path: Path) -> str:
    """Load the key from a file, or create it; a new file replaces the old one atomically."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(_LEAST) + "\n")
            _publish(new, path)
        finally:
            new.unlink(missing_ok=True)
    return path.read_text(encoding="ascii").strip()


def _publish(new: Path, path: Path) -> None:
    """Publish a new file under its name, unless another process was first."""
    try:
        os.link(new, path)  # unlike a rename, it does not replace
    except FileExistsError:
        return
