"""Guarded HTTP access: a client with an SSRF guard; Loom has no other way to the web."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.net.address import refusal_of
    from loom_core.net.client import GuardedClient, HttpResponse
    from loom_core.net.connections import system_trust
    from loom_core.net.policy import NetPolicy
    from loom_core.net.ssrf_guard import Resolver
    from loom_core.net.url import canonical_url, redact_url

__all__ = [
    "GuardedClient",
    "HttpResponse",
    "NetPolicy",
    "Resolver",
    "canonical_url",
    "redact_url",
    "refusal_of",
    "system_trust",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
