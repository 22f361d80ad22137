"""Logins at rest: encrypted with a key that the system's keyring has, where there is a keyring.

The keyring keeps one key for all logins and no login itself: tokens change often and may be longer than some
keyrings take, and a file is replaced as a whole.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError, StoreBusyError
from loom_core.keys import own_key
from loom_core.storage.lock import ProcessLock

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.fernet import Fernet

__all__ = ["Seal"]

_MARK = b"loom-sealed-1\n"
_ENTRY = "oauth-logins"
_LOCK_SECONDS = 15.0  # longer than the keyring may take


class Seal:
    """Closes what is written, and opens what was written. Without a keyring it leaves both as they are.

    Args:
        folder: of the files; there is one.
        keyring: whether the keyring is asked.
    """

    def __init__(self, folder: Path, *, keyring: bool = True) -> None:
        self._folder = folder
        self._keyring = keyring
        self._cipher: Fernet | None = None

    def closed(self, content: bytes) -> bytes:
        """What a file is to hold. Blocks.

        Raises:
            StoreBusyError: another process is asking the keyring for so long.
        """
        cipher = self._key()
        return content if cipher is None else _MARK + cipher.encrypt(content)

    def opened(self, held: bytes) -> bytes:
        """What was written, from what a file holds. Blocks.

        Raises:
            ConfigError: it is encrypted, and the keyring does not have the key.
            StoreBusyError: another process is asking the keyring for so long.
        """
        if not held.startswith(_MARK):
            return held
        from cryptography.fernet import InvalidToken

        cipher = self._key()
        if cipher is None:
            raise ConfigError(
                "The logins are encrypted, and the system's keyring, which has the key, cannot be asked.",
                advice="Unlock the keyring and install the package `keyring`, or log in again.",
            )
        try:
            return cipher.decrypt(held.removeprefix(_MARK))
        except InvalidToken:
            raise ConfigError(
                "A login is encrypted with a key that the system's keyring does not have any more.",
                advice="Log in again.",
            ) from None

    def _key(self) -> Fernet | None:
        if self._cipher is None and self._keyring:
            from cryptography.fernet import Fernet

            key = self._own_key()
            try:
                self._cipher = None if key is None else Fernet(key)
            except ValueError:
                raise ConfigError(
                    f"The entry {_ENTRY!r} of the system's keyring under 'loom' is no key.",
                    advice=f"Remove it (keyring del loom {_ENTRY}), and log in again.",
                ) from None
        return self._cipher

    def _own_key(self) -> bytes | None:
        from cryptography.fernet import Fernet

        lock = ProcessLock(self._folder / "key.lock")
        deadline = time.monotonic() + _LOCK_SECONDS
        while not lock.acquire():
            if time.monotonic() > deadline:
                raise StoreBusyError(
                    "Another process has been asking the system's keyring all the time.",
                    advice="See whether the keyring is asking you for its password.",
                )
            time.sleep(0.02)
        try:
            key = own_key(_ENTRY, make=lambda: Fernet.generate_key().decode())
        finally:
            lock.release()
        return None if key is None else key.get_secret_value().encode()
