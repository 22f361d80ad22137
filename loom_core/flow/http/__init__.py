"""HTTP for flows: a guarded client for each file, and system tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.http.caller import EndpointCaller
    from loom_core.flow.http.response import interpret_response
    from loom_core.flow.http.tool import ConfigToolLoader

__all__ = [
    "ConfigToolLoader",
    "EndpointCaller",
    "interpret_response",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
