"""The caller of a request, with scopes.

The caller is available to everything that runs for a request, without being passed on: to a tool as
`ToolContext.caller`, to code that reads stores by `current_caller()`. So access is checked in the one place
where a store is opened, and no code can forget to.
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
"""`read`: tools that change nothing, resources, prompts. `write`: the other tools. `admin`: `/metrics`, and
the tools for operators, such as those for conversations that flows hand over."""

SCOPES: frozenset[Scope] = frozenset(get_args(Scope))


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        name: name for people and logs, such as that of a token.
        scopes: granted scopes.
        sources: the server's data that they may use, such as knowledge bases; None for all.
        id: unique id, even among callers of one name; empty without authentication.
        context: variables that a call cannot override, such as the tenant.
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
"""The user of a stdio server, or a local client of a server without authentication."""

_current: ContextVar[Caller] = ContextVar("loom_caller", default=FULL_ACCESS)


def current_caller() -> Caller:
    """Return the caller of the current request; `FULL_ACCESS` outside of requests, as in background work."""
    return _current.get()


@contextmanager
def use_caller(caller: Caller) -> Generator[None]:
    """Set the current caller for the block, and for all tasks and threads that it starts."""
    before = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(before)
