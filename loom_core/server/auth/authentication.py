"""Authentication of HTTP requests: Loom's bearer tokens, access tokens of an issuer, challenges."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import anyio
from pydantic import SecretStr

from loom_core.keys import register_secret
from loom_core.server.auth.access_tokens import Issuer, IssuerUnavailableError, JwtVerifier, VerifiedJwt
from loom_core.server.auth.refusal import Refusal, RefusedError
from loom_core.server.auth.tokens import Token, TokenFile, has_token_form

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from loom_core.server.auth.caller import Caller, Scope

__all__ = ["AuthSettings", "Authentication", "Credential", "CredentialMonitor", "metadata_url"]

_TokenProblem = Literal["no_token", "bad_token", "expired_token"]
_MAX_TOKEN = 8192  # characters
_RETRY_SECONDS = 30
_CHECK_SECONDS = 3.0  # between two checks of credentials in use: files and clocks send no notifications


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Authentication settings: token file and trusted issuer.

    Attributes:
        tokens: file of Loom's own bearer tokens, see `paths.token_path`; None for none.
        issuer: trusted issuer of access tokens for this server; None for none.
    """

    tokens: Path | None = None
    issuer: Issuer | None = None

    @property
    def is_required(self) -> bool:
        """Whether requests must authenticate."""
        return self.tokens is not None or self.issuer is not None


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential that admitted a request.

    Attributes:
        caller: the caller that it authenticates.
    """

    caller: Caller
    _held: Token | VerifiedJwt
    _file: TokenFile | None

    def holds(self) -> bool:
        """Return whether it is still valid: neither revoked nor expired."""
        if isinstance(self._held, VerifiedJwt):
            return not self._held.expired
        return self._file is not None and self._file.holds(self._held)


class CredentialMonitor:
    """Monitor of running work: it cancels what runs for a credential that is revoked or expires."""

    def __init__(self) -> None:
        self._running: dict[anyio.CancelScope, Credential] = {}

    @contextmanager
    def cancelling(self, credential: Credential) -> Generator[None]:
        """Run a block until it ends or the credential is no longer valid; then the block is cancelled."""
        with anyio.CancelScope() as scope:
            self._running[scope] = credential
            try:
                yield
            finally:
                del self._running[scope]

    async def run(self) -> None:
        """Check the credentials every few seconds, until cancelled."""
        while True:
            await anyio.sleep(_CHECK_SECONDS)
            for scope, credential in self._running.items():
                if not credential.holds():
                    scope.cancel()


class Authentication:
    """Authenticator of requests by their `Authorization` header.

    Args:
        settings: which tokens are accepted.
        realm: name of the server.
        verifier: verifies the issuer's tokens; created from the settings if not given.
    """

    def __init__(self, settings: AuthSettings, *, realm: str, verifier: JwtVerifier | None = None) -> None:
        self._realm = realm
        self._file = None if settings.tokens is None else TokenFile(settings.tokens)
        self._issuer = settings.issuer
        self._verifier = verifier or (JwtVerifier(settings.issuer) if settings.issuer else None)

    async def authenticate(self, headers: Sequence[str]) -> Credential:
        """Authenticate a request by its `Authorization` headers.

        Raises:
            RefusedError: the token is missing or invalid, or the issuer is unavailable.
        """
        if not headers:
            raise self._unknown("no_token", "This server requires a bearer token.")
        scheme, _, token = headers[0].partition(" ")
        token = token.strip()
        if len(headers) > 1 or scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise self._unknown("bad_token", "Send one Authorization header with a bearer token.")
        if has_token_form(token):
            credential = self._check_bearer_token(token)
        elif self._verifier is None:
            raise self._unknown("bad_token", "The token is not one of this server's.")
        else:
            credential = await self._check_access_token(self._verifier, token)
        register_secret(
            SecretStr(token)
        )  # only now: an unauthenticated client must not choose what the log redacts
        return credential

    def demand(self, scope: Scope, caller: Caller) -> None:
        """Require that a caller has a scope.

        Raises:
            RefusedError: they do not; the challenge names the scopes they need (RFC 6750, 3.1).
        """
        if caller.may(scope):
            return
        text = f"The token does not have the scope {scope}."
        wanted = " ".join(sorted({*caller.scopes, scope}))
        challenge = self._header(error="insufficient_scope", error_description=text, scope=wanted)
        raise RefusedError(
            Refusal(403, "scope", text, challenge=challenge, code="insufficient_scope", caller=caller)
        )

    def _check_bearer_token(self, token: str) -> Credential:
        found = self._file.find(token) if self._file else None
        if found is None:
            raise self._unknown("bad_token", "The token is not known, or was revoked.")
        if found.expired:
            raise self._unknown("expired_token", "The token has expired.", caller=found.caller())
        return Credential(found.caller(), found, self._file)

    async def _check_access_token(self, verifier: JwtVerifier, token: str) -> Credential:
        try:
            verified = await verifier.verify(token)
        except IssuerUnavailableError as error:
            raise RefusedError(Refusal(503, "issuer", error.message, retry_after=_RETRY_SECONDS)) from error
        if verified is None:
            raise self._unknown("bad_token", "The token is not valid for this server.")
        return Credential(verified.caller, verified, None)

    def _unknown(self, reason: _TokenProblem, text: str, *, caller: Caller | None = None) -> RefusedError:
        # A request without credentials gets no error code (RFC 6750, 3.1).
        told = {} if reason == "no_token" else {"error": "invalid_token", "error_description": text}
        challenge = self._header(**told, scope="read write")
        code = "unauthorized" if reason == "no_token" else "invalid_token"
        return RefusedError(Refusal(401, reason, text, challenge=challenge, code=code, caller=caller))

    def _header(self, **parameters: str) -> str:
        told = {"realm": self._realm, **parameters}
        if self._issuer is not None:
            told["resource_metadata"] = metadata_url(self._issuer.resource)
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in told.items())


def metadata_url(resource: str) -> str:
    """Return the URL of a protected resource's metadata (RFC 9728, 3.1)."""
    place = urlsplit(resource)
    path = place.path if place.path != "/" else ""
    return f"{place.scheme}://{place.netloc}/.well-known/oauth-protected-resource{path}"
