"""OAuth 2.1 resource server: access tokens from an external issuer, as signed JWTs (RFC 9068).

These are checked: the signature, by a key of the issuer and an allowed algorithm; `iss`; `aud`, which must be
this server, so that a token for another service is invalid here; `exp` and `nbf`; and that it is an access
token. RFC 9068 (4) requires the header's `typ` to say so, but many issuers write `JWT`, as in ID tokens, or
nothing: such tokens are accepted unless a claim shows that they are of another kind, or the operator requires
`at+jwt`.

Its scopes say what it allows; the optional claim `loom_sources` restricts it to some of the server's data.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from loom_core.errors import ConfigError, NetError
from loom_core.server.auth.caller import SCOPES, Caller, Scope
from loom_core.server.auth.signing_keys import ALGORITHMS, SigningKeys, is_safe_url

if TYPE_CHECKING:
    from loom_core.net import GuardedClient

__all__ = ["Issuer", "IssuerUnavailableError", "JwtVerifier", "VerifiedJwt"]

_LEEWAY = 30.0  # seconds that clocks may differ
_SOURCES_CLAIM = "loom_sources"
_ACCESS_TYPE = "at+jwt"  # RFC 9068
_ANY_TYPES = frozenset({"", "jwt"})  # which do not tell the kind of token
_KIND_CLAIMS = {"typ": "bearer", "token_use": "access"}  # Keycloak, Cognito: values for an access token
_ID_CLAIMS = ("nonce", "at_hash", "c_hash")  # OpenID Connect: claims that only ID tokens have

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Issuer:
    """Trusted issuer of access tokens, and their audience.

    Attributes:
        url: the issuer, exactly as its metadata and its tokens name it (`iss`).
        resource: URL of this server's endpoint as clients reach it, which tokens must be for (`aud`).
        jwks_url: URL of its keys; from its metadata if empty.
        typed: whether only tokens with `at+jwt` in their header are accepted.
    """

    url: str
    resource: str
    jwks_url: str = ""
    typed: bool = False

    def __post_init__(self) -> None:
        """Validate the addresses: keys come over a safe URL, and the resource can be an audience.

        Raises:
            ConfigError: one of the addresses is not what it must be.
        """
        for name, url in (("issuer", self.url), ("URL of its keys", self.jwks_url or self.url)):
            if not is_safe_url(url):
                raise ConfigError(
                    f"The {name} {url!r} is not an https address.",
                    advice="Keys must come over https, or from this machine.",
                )
        place = urlsplit(self.resource)
        if place.scheme not in {"http", "https"} or not place.hostname or place.query or place.fragment:
            raise ConfigError(
                f"{self.resource!r} is not the URL of an endpoint.",
                advice="Give it as clients reach it, such as https://kb.example/mcp.",
            )


@dataclass(frozen=True, slots=True)
class VerifiedJwt:
    """A valid token.

    Attributes:
        caller: the caller that it authenticates.
        expires: when it expires, in seconds since 1970.
    """

    caller: Caller
    expires: float

    @property
    def expired(self) -> bool:
        """Whether it has expired."""
        return time.time() >= self.expires


class IssuerUnavailableError(NetError):
    """The issuer's keys are unavailable, so no token can be validated."""


class JwtVerifier:
    """Verifier of one issuer's tokens.

    Args:
        issuer: the trusted issuer.
        client: fetches the keys; by default one that may reach the issuer's host, even at a private address,
            and the public internet.
    """

    def __init__(self, issuer: Issuer, *, client: GuardedClient | None = None) -> None:
        self._issuer = issuer
        self._keys = SigningKeys(issuer.url, issuer.jwks_url, client=client)

    async def verify(self, token: str) -> VerifiedJwt | None:
        """Return a valid token's caller and expiry, or None if it is invalid; the log says why.

        Raises:
            IssuerUnavailableError: the keys of the issuer cannot be fetched.
        """
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            algorithm: object = header.get("alg")
            if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
                _log.warning("a token is refused: it is not signed with a private key")
                return None
            key = await self._keys.find(header.get("kid"), algorithm)
            if key is None:
                _log.warning("a token is refused: the issuer has no such key")
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=sorted(ALGORITHMS),
                audience=self._issuer.resource,
                issuer=self._issuer.url,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
        except (jwt.PyJWTError, RecursionError) as error:  # their messages name claims, never the token
            _log.warning("a token is refused: %s", error)
            return None
        except NetError as error:
            _log.error("the keys of the issuer cannot be fetched: %s", error)
            raise IssuerUnavailableError(
                "The keys of the issuer of access tokens are not available.", advice="Try again later."
            ) from error
        if (kind := _other_kind(header, claims, typed=self._issuer.typed)) is not None:
            _log.warning("a token is refused: by its %s it is not an access token", kind)
            return None
        return self._read_claims(claims)

    def _read_claims(self, claims: dict[str, Any]) -> VerifiedJwt | None:
        sources: object = claims.get(_SOURCES_CLAIM)
        if sources is not None and not _is_texts(sources):
            _log.warning("a token is refused: its %s is not a list of names", _SOURCES_CLAIM)
            return None
        subject = str(claims.get("sub") or claims.get("client_id") or claims.get("azp") or "")
        if not subject:
            _log.warning("a token is refused: it names neither a subject nor a client")
            return None
        client = str(claims.get("client_id") or claims.get("azp") or "")
        caller = Caller(
            subject,
            _scopes(claims),
            None if sources is None else frozenset(cast("list[str]", sources)),
            id=f"oauth:{self._issuer.url}:{client}:{subject}",
        )
        return VerifiedJwt(caller, float(claims["exp"]) + _LEEWAY)


def _other_kind(header: dict[str, Any], claims: dict[str, Any], *, typed: bool) -> str | None:
    """Return the header field or claim that shows that a token is no access token; None if it is one."""
    type_ = str(header.get("typ") or "").lower().removeprefix("application/")
    if type_ == _ACCESS_TYPE:
        return None
    if typed or type_ not in _ANY_TYPES:
        return "typ"
    said = [name for name in _KIND_CLAIMS if name in claims]
    for name in said:
        if str(claims[name]).lower() != _KIND_CLAIMS[name]:
            return f"claim {name}"
    found = [] if said else [name for name in _ID_CLAIMS if name in claims]
    return f"claim {found[0]}" if found else None


def _scopes(claims: dict[str, Any]) -> frozenset[Scope]:
    """Return Loom's scopes in `scope` (RFC 9068) or `scp` (Entra ID, Okta): a text with spaces, or a list."""
    given: object = claims.get("scope", claims.get("scp", ""))
    names = given.split() if isinstance(given, str) else given if _is_texts(given) else []
    return SCOPES & frozenset(cast("list[Scope]", names))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))
