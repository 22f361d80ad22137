"""The guarded HTTP client: one request with its redirects, within limits of place, time and size."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

import anyio

from loom_core.errors import NetError
from loom_core.net.gate import Gate, resolve
from loom_core.net.policy import NetPolicy
from loom_core.net.trust import system_trust
from loom_core.net.unpacking import ACCEPTED, Unpacking
from loom_core.net.url import origin_of, parse_url, redacted

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    import httpcore2
    import httpx2

    from loom_core.net.gate import Resolver

__all__ = ["HttpClient", "HttpResponse", "Method"]

_log = logging.getLogger(__name__)

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HARMLESS = frozenset(
    {"accept", "accept-encoding", "accept-language", "if-modified-since", "if-none-match", "user-agent"}
)
"""Headers that another origin may see after a redirect; any other may be a key."""

_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer, whole and unpacked.

    Attributes:
        url: where it came from in the end, after redirects.
        status: HTTP status.
        headers: by name in lower case; repeated ones joined by a comma.
        body: unpacked bytes.
    """

    url: str
    status: int
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    @property
    def media_type(self) -> str:
        """`text/html`, without parameters; empty if the answer names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The encoding that the answer names, or empty."""
        match = _CHARSET.search(self.headers.get("content-type", ""))
        return match[1] if match else ""


class HttpClient:
    """Asks the open internet, and what a policy allows besides.

    Every host is checked before it is asked, the first and those of redirects: its name, its port and all its
    addresses; the connection goes to an address that was checked. Cookies and proxies of the environment are
    not used. A connection lasts for one request.

    Args:
        policy: what is allowed, and the limits.
        resolve: finds the addresses of names.
        tls: what certificates are checked against; by default those that the system trusts.
    """

    def __init__(
        self,
        policy: NetPolicy | None = None,
        *,
        resolve: Resolver = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._policy = policy or NetPolicy()
        self._gate = Gate(self._policy, resolve)
        self._tls = tls

    def check(self, url: str) -> str:
        """An address in its canonical form, if nothing in it speaks against asking it. Asks nobody.

        Raises:
            NetError: it is no address, or of a place that may not be asked.
        """
        target = parse_url(url)
        self._gate.check(target)
        return str(target)

    async def request(
        self, method: Method, url: str, *, headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> HttpResponse:
        """Ask, and read the whole answer.

        Redirects of GET and HEAD are followed; other methods get the redirect itself as the answer. At
        another origin only harmless headers are sent on.

        Args:
            method: HTTP method.
            url: http or https address.
            headers: further headers; `User-Agent` and `Accept-Encoding` are set.
            content: what is sent.

        Returns:
            The answer, whatever its status.

        Raises:
            NetError: the address may not be asked, nobody answers in time, or the answer is too large or
                broken. Its message has no query strings.
        """
        target = parse_url(url)
        given = {name.lower(): value for name, value in (headers or {}).items()}
        sent = {**given, "user-agent": f"loom/{version('loom-mcp-core')}", "accept-encoding": ACCEPTED}
        try:
            with anyio.fail_after(self._policy.total_seconds):
                return await self._follow(method, target, sent, content)
        except TimeoutError as error:
            raise NetError(
                f"{redacted(target)} was not answered within {self._policy.total_seconds:g} seconds.",
                advice="Try again later.",
            ) from error

    async def _follow(
        self, method: Method, target: httpx2.URL, headers: dict[str, str], content: bytes
    ) -> HttpResponse:
        for _ in range(self._policy.max_redirects + 1):
            response = await self._ask(method, target, headers, content)
            _log.debug("%s %s: %d, %d bytes", method, redacted(target), response.status, len(response.body))
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location or method not in {"GET", "HEAD"}:
                return response
            following = _joined(target, location)
            if origin_of(following) != origin_of(target):
                headers = {name: value for name, value in headers.items() if name in _HARMLESS}
            target = following
        raise NetError(
            f"{redacted(target)} was reached by more than {self._policy.max_redirects} redirects.",
            advice="Open it in a browser and give the address where it ends.",
        )

    async def _ask(
        self, method: Method, target: httpx2.URL, headers: dict[str, str], content: bytes
    ) -> HttpResponse:
        import httpcore2

        self._gate.check(target)
        host = origin_of(target)[1]
        address = httpcore2.URL(
            scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path
        )
        extensions = {"timeout": {"connect": self._policy.connect_seconds}}
        try:
            async with (
                self._pool() as pool,
                pool.stream(
                    method,
                    address,
                    headers=[("host", target.netloc.decode("ascii")), *headers.items()],
                    content=content or None,
                    extensions=extensions,
                ) as answer,
            ):
                received = self._headers_of(answer, target)
                unpacking = Unpacking(received.get("content-encoding", ""))
                body = await self._body_of(answer, target, unpacking)
                return HttpResponse(str(target), answer.status, received, body)
        except httpcore2.TimeoutException as error:
            raise NetError(
                f"{host} could not be connected within {self._policy.connect_seconds:g} seconds.",
                advice="Check the address and the connection.",
            ) from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError) as error:
            reason = str(error).strip().rstrip(".") or "the connection was closed"
            raise NetError(
                f"{redacted(target)} could not be read: {reason}.",
                advice="Check the address and the connection.",
            ) from error

    def _pool(self) -> httpcore2.AsyncConnectionPool:
        import httpcore2
        import httpx2

        from loom_core.net.connect import CheckedBackend

        tls = self._tls or system_trust()
        if not self._policy.proxy:
            return httpcore2.AsyncConnectionPool(ssl_context=tls, network_backend=CheckedBackend(self._gate))
        proxy = httpx2.Proxy(self._policy.proxy)
        return httpcore2.AsyncHTTPProxy(str(proxy.url), proxy_auth=proxy.raw_auth, ssl_context=tls)

    def _headers_of(self, answer: httpcore2.Response, target: httpx2.URL) -> dict[str, str]:
        if sum(len(name) + len(value) for name, value in answer.headers) > self._policy.max_header_bytes:
            raise _too_large(target, self._policy.max_header_bytes, "its header", advice=self._policy.smaller)
        headers: dict[str, str] = {}
        for raw_name, raw_value in answer.headers:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        announced = headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced) > self._policy.max_bytes:
            raise _too_large(target, self._policy.max_bytes, "it", advice=self._policy.smaller)
        return headers

    async def _body_of(self, answer: httpcore2.Response, target: httpx2.URL, unpacking: Unpacking) -> bytes:
        limit = self._policy.max_bytes
        pieces: list[bytes] = []
        received = size = 0
        async for data in answer.aiter_stream():
            received += len(data)
            for piece in unpacking.feed(data):
                size += len(piece)
                pieces.append(piece)
                if max(received, size) > limit:
                    raise _too_large(target, limit, "it", advice=self._policy.smaller)
        unpacking.finish()
        return b"".join(pieces)


def _joined(target: httpx2.URL, location: str) -> httpx2.URL:
    """Where a redirect leads.

    Raises:
        NetError: nowhere that can be asked.
    """
    import httpx2

    try:
        # Header bytes that are no ASCII are UTF-8 in practice.
        return parse_url(str(target.join(location.encode("latin-1").decode("utf-8", "replace"))))
    except httpx2.InvalidURL as error:
        raise NetError(
            f"{redacted(target)} redirects to what is no web address.", advice="Open it in a browser."
        ) from error


def _too_large(target: httpx2.URL, limit: int, what: str, *, advice: str) -> NetError:
    return NetError(
        f"{redacted(target)} is not read: {what} has more than {limit:,} bytes.",
        advice=advice,
    )
