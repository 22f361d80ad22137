"""Which certificates are trusted."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

__all__ = ["system_trust"]


def system_trust() -> ssl.SSLContext:
    """What the certificates of servers are checked against: those that the system trusts.

    All connections share it, as it takes a tenth of a second of work to make. `SSL_CERT_FILE` and
    `SSL_CERT_DIR` name others.
    """
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()  # which reads the two variables
