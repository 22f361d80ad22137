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

import anyio

from loom_core.errors import ConfigError, NetError
from loom_core.jsonc import parse_object
from loom_core.net import GuardedClient, NetPolicy
from loom_core.server.auth.caller import SCOPES, Caller, Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from jwt import PyJWK


__all__ = ["Issuer", "IssuerUnavailableError", "JwtVerifier", "SigningKeys", "VerifiedJwt"]

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
            if not _is_safe_url(url):
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
            if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
                _log.warning("a token is refused: it is not signed with a private key")
                return None
            key = await self._keys.find(header.get("kid"), algorithm)
            if key is None:
                _log.warning("a token is refused: the issuer has no such key")
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=sorted(_ALGORITHMS),
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


_FRESH = 600.0  # seconds that keys are used without a new fetch
_BETWEEN = 30.0  # seconds at least from a fetch to the next: an unknown key must not become many requests
_STALE = 86_400.0  # seconds that keys are used while the issuer cannot be asked
_MAX_BYTES = 1 << 20
_TOTAL_SECONDS = 10.0

_RSA = ("RSA", None)
_KINDS: dict[str, tuple[object, object]] = {
    "RS256": _RSA,
    "RS384": _RSA,
    "RS512": _RSA,
    "PS256": _RSA,
    "PS384": _RSA,
    "PS512": _RSA,
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Which kind of key, and which curve, an algorithm needs."""

_ALGORITHMS = frozenset(_KINDS)
"""Signatures with a public key only: with HS256 the issuer's public key would do for signing."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class SigningKeys:
    """Cache of one issuer's keys, by their ids.

    Args:
        issuer: URL of the issuer.
        jwks_url: URL of its keys; from its metadata if empty (RFC 8414, OpenID Connect Discovery).
        client: fetches both.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        issuer: str,
        jwks_url: str = "",
        *,
        client: GuardedClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._client = client or _client_for(issuer, jwks_url)
        self._clock = clock
        self._keys: list[dict[str, Any]] = []
        self._fetched: float | None = None
        self._tried: float | None = None
        self._problem: NetError | None = None
        self._turn = anyio.Lock()

    async def find(self, id_: object, algorithm: str) -> PyJWK | None:
        """Find the key that a token is signed with; None if the issuer has no such key.

        Args:
            id_: the token's `kid`; None if exactly one key fits.
            algorithm: its `alg`.

        Raises:
            NetError: the issuer cannot be reached, and the cached keys are too old.
        """
        age = self._age(self._fetched)
        key = self._lookup(id_, algorithm) if age < _STALE else None
        if key is not None and (age < _FRESH or self._turn.locked()):  # another request fetches them
            return key
        async with self._turn:
            if self._age(self._tried) >= _BETWEEN:
                await self._fetch()
        if self._age(self._fetched) >= _STALE:
            raise self._problem or NetError(f"{self._issuer} was not asked for its keys.")
        return self._lookup(id_, algorithm)

    def _age(self, moment: float | None) -> float:
        return float("inf") if moment is None else self._clock() - moment

    def _lookup(self, id_: object, algorithm: str) -> PyJWK | None:
        fitting = [key for key in self._keys if _fits(key, algorithm)]
        named = fitting if id_ is None else [key for key in fitting if key.get("kid") == id_]
        if not named or (id_ is None and len(named) > 1):
            return None
        import jwt

        try:
            return jwt.PyJWK(named[0], algorithm)  # restricted to this algorithm
        except jwt.PyJWTError:
            _log.warning("a key of %s cannot be used", self._issuer)
            return None

    async def _fetch(self) -> None:
        """Fetch the keys; after a failure, the cached ones stay valid for a while."""
        try:
            url = self._jwks_url or await self._discover()
            self._keys = _usable(await self._json(url))
            self._fetched = self._clock()
            self._problem = None
            _log.info("the issuer %s has %d keys for signing", self._issuer, len(self._keys))
        except NetError as error:
            self._problem = error
            _log.warning("the keys of %s could not be fetched: %s", self._issuer, error)
        finally:
            self._tried = self._clock()

    async def _discover(self) -> str:
        place = urlsplit(self._issuer)
        origin, path = f"{place.scheme}://{place.netloc}", place.path.rstrip("/")
        known = (
            f"{origin}/.well-known/oauth-authorization-server{path}",
            f"{origin}/.well-known/openid-configuration{path}",
            f"{origin}{path}/.well-known/openid-configuration",
        )
        problem: NetError | None = None
        for url in dict.fromkeys(known):
            try:
                metadata = await self._json(url)
            except NetError as error:
                problem = error
                continue
            keys: object = metadata.get("jwks_uri")
            if metadata.get("issuer") != self._issuer:
                problem = NetError(f"{url} is the metadata of another issuer.", advice="Check the issuer.")
            elif not isinstance(keys, str) or not _is_safe_url(keys):
                problem = NetError(f"{url} names no https address of keys.", advice="Check the issuer.")
            else:
                return keys
        raise problem or NetError(f"{self._issuer} has no metadata.")

    async def _json(self, url: str) -> dict[str, Any]:
        response = await self._client.request("GET", url, headers={"accept": "application/json"})
        if response.status != 200:
            raise NetError(f"{url} answers with status {response.status}.", advice="Check the issuer.")
        value = parse_object(response.body)
        if value is None:
            raise NetError(f"{url} does not answer with a JSON object.", advice="Check the issuer.")
        return value


def _is_safe_url(url: str) -> bool:
    """Return whether keys may be fetched from a URL: over https, or from this machine."""
    place = urlsplit(url)
    return place.scheme == "https" or (place.scheme == "http" and place.hostname in _LOOPBACK)


def _client_for(*urls: str) -> GuardedClient:
    """Build a client with an SSRF guard: only hosts that the operator named may have a private address."""
    hosts = {urlsplit(url).hostname or "" for url in urls} - {""}
    allowed = NetPolicy.allowing(sorted(hosts))
    policy = NetPolicy(
        allowed.allowed_hosts,
        allowed.allowed_networks,
        max_bytes=_MAX_BYTES,
        total_seconds=_TOTAL_SECONDS,
    )
    return GuardedClient(policy)


def _usable(jwks: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the usable signing keys; unknown kinds are ignored."""
    keys: object = jwks.get("keys")
    entries = cast("list[object]", keys) if isinstance(keys, list) else []
    found = [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]
    return [key for key in found if _kind(key) in _KINDS.values() and key.get("use", "sig") == "sig"]


def _kind(key: dict[str, Any]) -> tuple[object, object]:
    return key.get("kty"), None if key.get("kty") == "RSA" else key.get("crv")


def _fits(key: dict[str, Any], algorithm: str) -> bool:
    """Return whether a key fits a signature algorithm."""
    return _KINDS.get(algorithm) == _kind(key) and key.get("alg", algorithm) == algorithm
