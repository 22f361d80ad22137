"""Bearer tokens: a file with their hashes and scopes.

A token has 256 random bits, so its plain SHA-256 cannot be reversed by a search: no slow hash is needed, and
a check takes microseconds. It begins with `loom_`, for people and for scanners of leaked secrets, and ends
with a checksum, to distinguish a mistyped or made-up one from a revoked one.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
import time
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.server.auth.caller import Caller, Scope
from loom_core.storage.private_file import PrivateFile

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from pathlib import Path

__all__ = ["Token", "TokenFile", "has_token_form"]

_PREFIX = "loom_"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_DIGITS = 43  # of 62: 256 bits
_CHECK_DIGITS = 6  # of 62: a CRC-32
_FORM = re.compile(f"{_PREFIX}([0-9A-Za-z]{{{_SECRET_DIGITS}}})([0-9A-Za-z]{{{_CHECK_DIGITS}}})")
_NAME = re.compile(r"[^\W_][\w.-]{0,63}")
_VERSION = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Token:
    """The stored facts of a token.

    Attributes:
        name: its name, unique in its file.
        hash: SHA-256 of the token, in hex.
        scopes: granted scopes.
        sources: the server's data that it is valid for; None for all.
        created: when it was created, in seconds since 1970.
        expires: when it expires, likewise; None for never.
        context: variables of the caller, which no call can override.
    """

    name: str
    hash: str
    scopes: frozenset[Scope]
    sources: frozenset[str] | None
    created: float
    expires: float | None
    context: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @property
    def expired(self) -> bool:
        """Whether it has expired."""
        return self.expires is not None and time.time() >= self.expires

    def caller(self) -> Caller:
        """Return the caller that the token authenticates."""
        return Caller(self.name, self.scopes, self.sources, f"token:{self.hash[:16]}", self.context)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    hash: str
    scopes: list[Scope]
    sources: list[str] | None
    created: float
    expires: float | None
    context: dict[str, str] = {}

    def token(self) -> Token:
        sources = None if self.sources is None else frozenset(self.sources)
        scopes = frozenset(self.scopes)
        return Token(self.name, self.hash, scopes, sources, self.created, self.expires, self.context)


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: int
    tokens: list[_Entry]


class TokenFile:
    """The token file of one server. Changes of other processes are visible at the next read.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = PrivateFile(path, title="The file of tokens")
        self._raw: bytes | None = None
        self._tokens: dict[str, Token] = {}

    def find(self, token: str) -> Token | None:
        """Return the stored facts of a token, expired or not; None if there is no such token.

        A file that cannot be read counts as empty: then no request is admitted, and the log says why.
        """
        if not has_token_form(token):
            return None
        digest = _hash(token)
        try:
            known = self._current()
        except ConfigError as error:
            _log.error("no token is accepted: %s", error)
            return None
        # All are compared, each in constant time: how long it takes says nothing about any of them.
        found = [entry for entry in known.values() if hmac.compare_digest(entry.hash, digest)]
        return found[0] if found else None

    def holds(self, token: Token) -> bool:
        """Return whether a token is neither revoked nor expired."""
        try:
            kept = self._current().get(token.name)
        except ConfigError:
            return False
        return kept == token and not token.expired

    def list(self) -> list[Token]:
        """List all tokens by name, including expired ones.

        Raises:
            ConfigError: the file cannot be read.
        """
        return sorted(self._current().values(), key=lambda token: token.name)

    def create(
        self,
        name: str,
        *,
        scopes: Iterable[Scope],
        sources: Iterable[str] | None = None,
        seconds: float | None = None,
        context: Mapping[str, str] | None = None,
    ) -> tuple[Token, SecretStr]:
        """Create a token; return its stored facts and the token itself, which cannot be recovered later.

        Args:
            name: its name: letters and digits of any script, and `_.-`.
            scopes: granted scopes, at least one.
            sources: the server's data that it is valid for; None for all.
            seconds: its lifetime; None for no limit.
            context: variables of the caller, which no call can override.

        Raises:
            InvalidInputError: the name is invalid or taken.
            ConfigError: the file cannot be read or written.
            StoreBusyError: another process writes it.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"{name[:80]!r} cannot be the name of a token.",
                advice="Use up to 64 letters and digits, and . _ - behind the first.",
            )
        secret = _new_token()
        now = time.time()
        token = Token(
            name=name,
            hash=_hash(secret),
            scopes=frozenset(scopes),
            sources=None if sources is None else frozenset(sources),
            created=now,
            expires=None if seconds is None else now + seconds,
            context=dict(context or {}),
        )
        with self._writing() as tokens:
            if name in tokens:
                raise InvalidInputError(
                    f"There is a token {name!r} already.", advice="Revoke it first, or choose another name."
                )
            tokens[name] = token
        return token, SecretStr(secret)

    def revoke(self, name: str) -> Token:
        """Remove a token from the file; requests with it are refused from the next one on.

        Raises:
            NotFoundError: there is no token of this name.
            ConfigError: the file cannot be read or written.
            StoreBusyError: another process writes it.
        """
        with self._writing() as tokens:
            if name not in tokens:
                names = ", ".join(sorted(tokens))
                raise NotFoundError(
                    f"There is no token {name[:80]!r}.", advice=f"There are: {names}." if names else ""
                )
            return tokens.pop(name)

    def _current(self) -> dict[str, Token]:
        raw = self._file.read()
        if raw is not self._raw:
            self._tokens = {} if raw is None else self._parse(raw)
            self._raw = raw
        return self._tokens

    def _parse(self, raw: bytes) -> dict[str, Token]:
        try:
            content = _Content.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise self._unreadable(f"{place + ': ' if place else ''}{first['msg']}") from None
        if content.version != _VERSION:
            raise self._unreadable(f"it is of version {content.version}, this Loom knows {_VERSION}")
        return {entry.name: entry.token() for entry in content.tokens}

    def _unreadable(self, reason: str) -> ConfigError:
        return ConfigError(
            f"The file of tokens {self.path} cannot be read: {reason}.",
            advice="Repair it, or move it away and create the tokens again.",
        )

    @contextmanager
    def _writing(self) -> Generator[dict[str, Token]]:
        """Yield the tokens for changes, and write them after the block; one process at a time."""
        with self._file.writing() as draft:
            tokens = {} if draft.raw is None else self._parse(draft.raw)
            yield tokens
            content = {"version": _VERSION, "tokens": [_plain(token) for token in tokens.values()]}
            draft.raw = (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def has_token_form(text: str) -> bool:
    """Return whether a text has the form and checksum of Loom's tokens."""
    form = _FORM.fullmatch(text)
    return form is not None and hmac.compare_digest(_checksum(form[1]), form[2])


def _new_token() -> str:
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_DIGITS))
    return f"{_PREFIX}{secret}{_checksum(secret)}"


def _checksum(secret: str) -> str:
    number, digits = zlib.crc32(secret.encode()), ""
    for _ in range(_CHECK_DIGITS):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _plain(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "hash": token.hash,
        "scopes": sorted(token.scopes),
        "sources": None if token.sources is None else sorted(token.sources),
        "created": token.created,
        "expires": token.expires,
        **({"context": dict(token.context)} if token.context else {}),
    }
