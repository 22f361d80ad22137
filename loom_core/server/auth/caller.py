"""The caller of a request, with scopes.

The caller of a request is known to everything that runs for it, without being handed on: to the tool as
`ToolContext.caller`, to what reads stores by `current_caller()`. So a store can refuse what a caller may not
see in the one place where it is opened, and nothing that is written later can forget to.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

__all__ = ["FULL_ACCESS", "SCOPES", "Caller", "Scope", "current_caller", "use_caller"]

Scope = Literal["read", "write", "admin"]
"""`read`: tools that change nothing, resources, prompts. `write`: the other tools. `admin`: `/metrics`."""

SCOPES: frozenset[Scope] = frozenset(get_args(Scope))


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        name: for people and logs, such as the name of a token.
        scopes: what they may do.
        sources: what they may use of the server's data, such as knowledge bases; None for all.
        id: what tells one caller from another, even of one name; empty without authentication.
        context: variables that are theirs whatever a call says, such as their tenant.
    """

    name: str
    scopes: frozenset[Scope]
    sources: frozenset[str] | None = None
    id: str = field(default="")
    context: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    def may(self, scope: Scope) -> bool:
        """Return whether the caller has a scope."""
        return scope in self.scopes

    def may_use(self, source: str) -> bool:
        """Return whether the caller may use a source of the server's data."""
        return self.sources is None or source in self.sources


FULL_ACCESS = Caller("local", SCOPES)
"""The user of a stdio server, or a local client of a server that demands no authentication."""

_current: ContextVar[Caller] = ContextVar("loom_caller", default=FULL_ACCESS)


def current_caller() -> Caller:
    """Return the caller of the current request; `FULL_ACCESS` outside of requests, as in background work."""
    return _current.get()


@contextmanager
def use_caller(caller: Caller) -> Generator[None]:
    """Do what is in the block, and all tasks and threads that it starts, for a caller."""
    before = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(before)
