"""What the libraries below log of our requests, without what may be secret: addresses hold keys, too."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from loom_core.mcp_client.shown import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["hide_secrets"]


class _ShownAddresses(logging.Filter):
    """Shows the harmless part of each address that a line is about."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._shown(record.args))
        return True

    def _shown(self, values: tuple[object, ...]) -> Iterator[object]:
        for value in values:
            text = str(value)
            yield shown_url(text) if text.startswith(("http://", "https://")) else value


class _WarningsOnly(logging.Filter):
    """Leaves out what tells of addresses, session ids and whole messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING


_SHOWN_ADDRESSES = _ShownAddresses()
_WARNINGS_ONLY = _WarningsOnly()


def hide_secrets() -> None:
    """Keep secrets out of the log; may be called again."""
    logging.getLogger("httpx2").addFilter(_SHOWN_ADDRESSES)
    for name in ("mcp.client.streamable_http", "mcp.client.sse"):
        logging.getLogger(name).addFilter(_WARNINGS_ONLY)
