"""Validation of request headers: valid characters, and headers reserved for the client."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.errors import NetError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["header_problem", "is_set_by_client", "validate_headers"]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OF_THE_CLIENT = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that set a message's end or its host: they allow request smuggling."""


def validate_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Validate headers, and return them by name in lower case.

    Raises:
        NetError: one is invalid; the message does not repeat its value, which may be a secret.
    """
    for name, value in headers.items():
        if problem := header_problem(name, value):
            raise NetError(
                f"The header {name[:64]!r} cannot be sent: {problem}.",
                advice="Leave it out, or write it in plain ASCII on one line.",
                failure="refused",
            )
    return {name.lower(): value for name, value in headers.items()}


def is_set_by_client(name: str) -> bool:
    """Return whether only the client may set a header."""
    return name.lower() in _OF_THE_CLIENT or name.lower().startswith("proxy-")


def header_problem(name: str, value: str) -> str:
    """Return why a header is invalid, as the end of a sentence without its value; empty if it is valid."""
    if not _NAME.fullmatch(name):
        return "that is not a valid name of a header"
    if is_set_by_client(name):
        return "the client sets it"
    if not _VALUE.fullmatch(value):
        return "its value has characters that are not printable ASCII"
    return ""
