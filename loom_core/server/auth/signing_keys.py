"""The public keys of an issuer of access tokens: discovery, cache, and refresh after key rotation."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import anyio

from loom_core.errors import NetError
from loom_core.jsonc import parse_object
from loom_core.net import GuardedClient, NetPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from jwt import PyJWK

__all__ = ["ALGORITHMS", "SigningKeys", "is_safe_url"]

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

ALGORITHMS = frozenset(_KINDS)
"""Signatures with a public key only: with HS256 the issuer's public key would do for signing."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger(__name__)


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
            elif not isinstance(keys, str) or not is_safe_url(keys):
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


def is_safe_url(url: str) -> bool:
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
