"""Detection of private keys and credentials, which are never loaded, so that search cannot leak them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import PurePath

__all__ = ["holds_credentials", "is_named_as_credentials", "is_private_key"]

_EXTENSIONS = frozenset((".jks", ".kdbx", ".keystore", ".keytab", ".p12", ".pem", ".pfx", ".ppk"))
_NAMES = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:[-_]\w+)?|ssh_host_\w+_key|[._]?netrc|[._]?pgpass|[._]?htpasswd"
    r"|authorized_keys2?|known_hosts|g?shadow-?|passwd-?|sudoers|credentials?|secrets?|tokens?|passwords?"
    r"|kubeconfig|vault[-_]pass(?:word)?",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    rb"|PuTTY-User-Key-File-\d|AGE-SECRET-KEY-1)"
)
_ANYWHERE = re.compile(
    rb"^[ \t]*(?:-----BEGIN (?:[A-Z0-9]+ ){0,3}(?:PRIVATE KEY|MESSAGE)|machine[ \t]+\S+\s+login[ \t]"
    rb"|\$ANSIBLE_VAULT;|AGE-SECRET-KEY-1)|aws_secret_access_key",
    re.MULTILINE,
)


def is_named_as_credentials(path: PurePath) -> bool:
    """Whether a file's name is typical of keys, certificates or passwords, such as `id_rsa` or `a.pem`."""
    if path.suffix:
        return path.suffix.lower() in _EXTENSIONS
    return _NAMES.fullmatch(path.name) is not None


def is_private_key(data: bytes) -> bool:
    """Whether the content of a file begins like a private key."""
    return _PRIVATE_KEY.match(data) is not None


def holds_credentials(head: bytes) -> bool:
    """Whether the beginning of a file with an unspecific name holds keys or passwords."""
    return _ANYWHERE.search(head) is not None
