"""Store of logins at MCP servers: a file for every process of this user.

A file holds the login of one entry of the configuration at one address, so that an entry whose address is
changed does not hand its tokens to another server. Only the user may read it (0600, in a folder 0700), it is
encrypted where there is a keyring, and it is replaced as a whole. A process that refreshes a token holds a
lock meanwhile: many refresh tokens are valid once, and the second of two processes would lose the login.
"""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import anyio
from anyio import to_thread
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from loom_core.errors import ConfigError, StoreBusyError
from loom_core.keys import own_key, register_secret
from loom_core.storage.lock import ProcessLock
from loom_core.storage.private_file import replace_private_file

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from cryptography.fernet import Fernet

__all__ = ["Encryption", "Login", "LoginStore", "Registration", "Tokens"]

_LOOK_SECONDS = 0.05
_EARLY = 30.0  # seconds before its end at which a token is not used any more


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Registration(_Kept):
    """The client's registration at one authorization server.

    Attributes:
        client_id: its name there.
        client_secret: its secret there, if it was given one.
        method: how it authenticates (`token_endpoint_auth_method`).
        issuer: the authorization server; None where it has no metadata.
        redirect_uri: redirect URI of the browser; empty if no browser is needed.
    """

    client_id: str
    client_secret: SecretStr | None = None
    method: str | None = None
    issuer: str | None = None
    redirect_uri: str = ""


class Tokens(_Kept):
    """Tokens that authorize requests.

    Attributes:
        access: access token, sent with each request to the MCP server.
        refresh: refresh token; None if the authorization server gives none.
        scope: granted scopes, separated by spaces.
        expires: when `access` expires, in seconds since 1970; None if unknown.
        endpoint: token endpoint, the only address that `refresh` is sent to.
        resource: resource that the tokens are for (RFC 8707); empty if the server does not use it.
        issuer: the authorization server that gave them; empty where it has no metadata.
    """

    access: SecretStr
    refresh: SecretStr | None = None
    scope: str = ""
    expires: float | None = None
    endpoint: str
    resource: str = ""
    issuer: str = ""

    @property
    def fresh(self) -> bool:
        """Whether `access` has not expired, as far as is known."""
        return self.expires is None or time.time() < self.expires - _EARLY


class Login(_Kept):
    """A stored login; empty before the first one.

    Attributes:
        version: version of the file's format.
        registration: the client's registration at the authorization server.
        tokens: the latest tokens.
        wanted: scopes that the server has demanded since, separated by spaces; the next login requests them.
    """

    version: Literal[1] = 1
    registration: Registration | None = None
    tokens: Tokens | None = None
    wanted: str = ""


def _register_secrets(login: Login) -> Login:
    """Register the login's secrets for redaction, and return it."""
    registration, tokens = login.registration, login.tokens
    held = (registration and registration.client_secret, tokens and tokens.access, tokens and tokens.refresh)
    for secret in filter(None, held):
        register_secret(secret)
    return login


class LoginStore:
    """Store of one server's login. Changes of other processes are visible at the next read.

    Args:
        home: Loom's folder.
        server: name of the entry in the configuration.
        url: its address.
        keyring: whether logins are encrypted with a key in the system's keyring.
    """

    def __init__(self, home: Path, server: str, url: str, *, keyring: bool = True) -> None:
        name = sha256(f"{server}\0{url}".encode()).hexdigest()[:32]
        self.path = home / "oauth" / f"{name}.json"
        self._seal = Encryption(self.path.parent, keyring=keyring)
        self._server = server

    def read(self) -> Login:
        """Return the stored login, or an empty one. Blocks.

        Raises:
            ConfigError: the file cannot be read.
            StoreBusyError: another process keeps the keyring busy.
        """
        try:
            return _register_secrets(Login.model_validate_json(self._seal.decrypt(self.path.read_bytes())))
        except FileNotFoundError:
            return Login()
        except OSError as error:
            raise self._problem("read", str(error.strerror)) from error
        except ValidationError:  # its text may show a token
            raise self._problem("read", "it was not written by Loom") from None

    def write(self, login: Login) -> None:
        """Replace the stored login. Blocks; call it within `exclusive`.

        Raises:
            ConfigError: the file cannot be written.
            StoreBusyError: another process keeps the keyring busy.
        """
        content = json.dumps(
            _register_secrets(login).model_dump(), default=SecretStr.get_secret_value
        ).encode()
        try:
            replace_private_file(self.path, self._seal.encrypt(content))
        except OSError as error:
            raise self._problem("written", str(error.strerror)) from error

    def forget(self) -> bool:
        """Delete the login; return whether there was one. Blocks; call it within `exclusive`.

        Raises:
            ConfigError: the file cannot be removed.
        """
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._problem("removed", str(error.strerror)) from error
        return True

    @asynccontextmanager
    async def exclusive(self, seconds: float) -> AsyncGenerator[None]:
        """Keep other processes from changing the login in the block.

        Args:
            seconds: timeout for the lock.

        Raises:
            StoreBusyError: another process holds the lock for longer.
            ConfigError: the folder cannot be written.
        """
        lock = ProcessLock(self.path.with_suffix(".lock"))
        deadline = anyio.current_time() + seconds
        try:
            while not await to_thread.run_sync(self._acquire, lock):
                if anyio.current_time() > deadline:
                    raise StoreBusyError(
                        f"Another process has been logging in at {self._server!r} for {seconds:g} seconds.",
                        advice="Try again when it is done.",
                    )
                await anyio.sleep(_LOOK_SECONDS)
            yield
        finally:
            lock.release()

    def _acquire(self, lock: ProcessLock) -> bool:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return lock.acquire()
        except OSError as error:
            raise self._problem("written", str(error.strerror)) from error

    def _problem(self, what: str, reason: str) -> ConfigError:
        return ConfigError(
            f"The login of {self._server!r} in {self.path} cannot be {what}: {reason}.",
            advice="Check the rights of the folder, or remove the file and log in again.",
        )


_MARK = b"loom-sealed-1\n"
_ENTRY = "oauth-logins"
_LOCK_SECONDS = 15.0  # longer than the keyring may take


class Encryption:
    """Encryption of stored logins with a key in the keyring; without a keyring, they are plain.

    Args:
        folder: folder of the files; it must exist.
        keyring: whether the keyring is used.
    """

    def __init__(self, folder: Path, *, keyring: bool = True) -> None:
        self._folder = folder
        self._keyring = keyring
        self._cipher: Fernet | None = None

    def encrypt(self, content: bytes) -> bytes:
        """Encrypt content for the file. Blocks.

        Raises:
            StoreBusyError: another process is asking the keyring for so long.
        """
        cipher = self._key()
        return content if cipher is None else _MARK + cipher.encrypt(content)

    def decrypt(self, held: bytes) -> bytes:
        """Decrypt the content of a file. Blocks.

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
                "The logins are encrypted, and the system's keyring, which has the key, is not available.",
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
                    f"The entry {_ENTRY!r} of the system's keyring under 'loom' is not a key.",
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
                    "Another process keeps the system's keyring busy.",
                    advice="See whether the keyring is asking you for its password.",
                )
            time.sleep(0.02)
        try:
            key = own_key(_ENTRY, make=lambda: Fernet.generate_key().decode())
        finally:
            lock.release()
        return None if key is None else key.get_secret_value().encode()
