"""Guarded HTTP client: one request with its redirects, with limits on hosts, time and size."""

from __future__ import annotations

import logging
import re
import zlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

import anyio

from loom_core.errors import NetError
from loom_core.net.connections import Connections
from loom_core.net.headers import validate_headers
from loom_core.net.policy import NetPolicy
from loom_core.net.ssrf_guard import SsrfGuard, resolve
from loom_core.net.url import origin_of, parse_url, redact_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping
    from typing import Self

    import httpcore2
    import httpx2

    from loom_core.net.ssrf_guard import Resolver

__all__ = ["ACCEPTED", "GuardedClient", "HttpResponse", "Method", "Unpacking"]

_log = logging.getLogger(__name__)

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_IDEMPOTENT: frozenset[Method] = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Idempotent methods: RFC 9110, section 9.2.2."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HARMLESS = frozenset(
    {"accept", "accept-encoding", "accept-language", "if-modified-since", "if-none-match", "user-agent"}
)
"""Headers that another origin may see after a redirect; any other may be a key."""

_CHARSET = re.compile(r"""charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete, decompressed response.

    Attributes:
        url: final URL, after redirects.
        status: HTTP status.
        headers: by name in lower case; repeated ones joined by a comma.
        body: decompressed bytes.
    """

    url: str = field(repr=False)
    status: int
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)

    @property
    def media_type(self) -> str:
        """Media type such as `text/html`, without parameters; empty if the response has none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The declared encoding, or empty."""
        match = _CHARSET.search(self.headers.get("content-type", ""))
        return match[1] if match else ""


class GuardedClient:
    """HTTP client for the open internet and the hosts that a policy allows.

    Every host is checked before a request, also after redirects: its name, its port and all its addresses;
    the connection goes to a checked address. Cookies and proxies of the environment are not used. A
    connection is for one request, or kept alive for the same origin; then the client is an asynchronous
    context manager, and is used in one event loop.

    Args:
        policy: the policy, with the limits.
        resolve: the resolver of host names.
        tls: trusted certificates; by default those of the system.
        keep_seconds: keep-alive of an idle connection; less than that of servers, often 5 seconds.
    """

    def __init__(
        self,
        policy: NetPolicy | None = None,
        *,
        resolve: Resolver = resolve,
        tls: ssl.SSLContext | None = None,
        keep_seconds: float = 0.0,
    ) -> None:
        self._policy = policy or NetPolicy()
        self._gate = SsrfGuard(self._policy, resolve)
        self._connections = Connections(self._policy, self._gate, tls=tls, keep_seconds=keep_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close idle connections; those in use close when their requests end.

        The client can be used again afterwards.
        """
        await self._connections.aclose()

    def check(self, url: str) -> str:
        """Return an address in its canonical form if the policy allows it. Sends nothing.

        Raises:
            NetError: it is no address, or of a place that may not be asked.
        """
        target = parse_url(url)
        self._gate.check(target)
        return str(target)

    async def request(
        self,
        method: Method,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        seconds: float | None = None,
        repeatable: bool | None = None,
    ) -> HttpResponse:
        """Send a request, and read the complete response.

        Redirects of GET and HEAD are followed; other methods return the redirect itself. Another origin gets
        only harmless headers.

        Args:
            method: HTTP method.
            url: http or https address.
            headers: further headers; `User-Agent` and `Accept-Encoding` are set.
            content: the request body.
            seconds: total timeout, if it is shorter than the policy's.
            repeatable: whether the request is idempotent; by default as HTTP says of its method. A server may
                close a kept-alive connection just when it is used, which leaves the outcome unknown: so only
                an idempotent request uses one, and is sent again over a new one.

        Returns:
            The response, whatever its status.

        Raises:
            NetError: the address is not allowed, no host responds in time, or the response is too large or
                broken. Its message has no query strings.
        """
        target = parse_url(url)
        request = _Request(
            method,
            {
                **validate_headers(headers or {}),
                "user-agent": _user_agent(),
                "accept-encoding": ACCEPTED,
            },
            content,
            repeatable=method in _IDEMPOTENT if repeatable is None else repeatable,
        )
        granted = self._policy.total_seconds if seconds is None else min(seconds, self._policy.total_seconds)
        try:
            with anyio.fail_after(granted):
                return await self._follow(request, target)
        except TimeoutError as error:
            raise NetError(
                f"{redact_url(target)} was not answered within {round(granted, 2):g} seconds.",
                advice="Try again later.",
                failure="timeout" if request.sent else "connection",
            ) from error

    async def _follow(self, request: _Request, target: httpx2.URL) -> HttpResponse:
        method = request.method
        for _ in range(self._policy.max_redirects + 1):
            response = await self._send_with_retry(request, target)
            _log.debug("%s %s: %d, %d bytes", method, redact_url(target), response.status, len(response.body))
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location or method not in {"GET", "HEAD"}:
                return response
            following = _resolve_redirect(target, location)
            if origin_of(following) != origin_of(target):
                harmless = {name: value for name, value in request.headers.items() if name in _HARMLESS}
                request = replace(request, headers=harmless)
            target = following
        raise NetError(
            f"{redact_url(target)} needs more than {self._policy.max_redirects} redirects.",
            advice="Open it in a browser and give the address where it ends.",
            failure="unusable",
        )

    async def _send_with_retry(self, request: _Request, target: httpx2.URL) -> HttpResponse:
        try:
            return await self._send(request, target, fresh=not request.repeatable)
        except NetError:
            if not request.swallowed:
                raise
            _log.debug("%s had closed the pooled connection", redact_url(target))
            return await self._send(request, target, fresh=True)

    async def _send(self, request: _Request, target: httpx2.URL, *, fresh: bool) -> HttpResponse:
        import httpcore2

        request.connected = request.swallowed = False

        self._gate.check(target)
        host = origin_of(target)[1]
        address = httpcore2.URL(
            scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path
        )
        try:
            async with (
                self._connections.pool(fresh=fresh) as pool,
                pool.stream(
                    request.method,
                    address,
                    headers=[("host", target.netloc.decode("ascii")), *request.headers.items()],
                    content=request.content or None,
                    extensions={
                        "timeout": {"connect": self._policy.connect_seconds},
                        "trace": request.note,
                    },
                ) as answer,
            ):
                received = self._headers_of(answer, target)
                unpacking = Unpacking(received.get("content-encoding", ""))
                body = await self._body_of(answer, target, unpacking)
                return HttpResponse(str(target), answer.status, received, body)
        except httpcore2.TimeoutException as error:
            raise NetError(
                f"{host} did not accept a connection within {self._policy.connect_seconds:g} seconds.",
                advice="Check the address and the connection.",
                failure="connection",
            ) from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError) as error:
            reason = str(error).strip().rstrip(".") or "the connection was closed"
            raise NetError(
                f"{redact_url(target)} could not be read: {reason}.",
                advice="Check the address and the connection.",
                failure="interrupted" if request.sent else "connection",
            ) from error

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
            if received > limit:  # also what unpacks to nothing: padding behind the end, or a long header
                raise _too_large(target, limit, "it", advice=self._policy.smaller)
            for piece in unpacking.feed(data):
                size += len(piece)
                pieces.append(piece)
                if size > limit:
                    raise _too_large(target, limit, "it", advice=self._policy.smaller)
        unpacking.finish()
        return b"".join(pieces)


@dataclass(slots=True)
class _Request:
    """State of a request.

    Attributes:
        method: HTTP method.
        headers: by name in lower case.
        content: the request body.
        repeatable: whether it is idempotent.
        sent: whether its sending has begun.
        connected: whether it opened a new connection.
        swallowed: whether it used a kept-alive connection, and no response has begun.
    """

    method: Method
    headers: dict[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    repeatable: bool
    sent: bool = False
    connected: bool = False
    swallowed: bool = False

    async def note(self, event: str, _: object) -> None:
        """Record an event of the connection."""
        if event.endswith(".connect_tcp.complete"):
            self.connected = True
        elif event.endswith(".send_request_headers.started"):
            self.sent, self.swallowed = True, not self.connected
        elif event.endswith(".receive_response_headers.complete"):
            self.swallowed = False


@lru_cache(maxsize=1)
def _user_agent() -> str:
    return f"loom/{version('loom-mcp-core')}"


def _resolve_redirect(target: httpx2.URL, location: str) -> httpx2.URL:
    """Resolve the target of a redirect.

    Raises:
        NetError: it is no valid web address.
    """
    import httpx2

    try:
        # Header bytes that are no ASCII are UTF-8 in practice.
        return parse_url(str(target.join(location.encode("latin-1").decode("utf-8", "replace"))))
    except httpx2.InvalidURL as error:
        raise NetError(
            f"{redact_url(target)} redirects to something that is not a web address.",
            advice="Open it in a browser.",
            failure="refused",
        ) from error


def _too_large(target: httpx2.URL, limit: int, what: str, *, advice: str) -> NetError:
    return NetError(
        f"{redact_url(target)} is not read: {what} has more than {limit:,} bytes.",
        advice=advice,
        failure="unusable",
    )


ACCEPTED = "gzip, deflate"
"""Accepted content encodings. Every server supports these, and both are in the standard library."""

_UNPACKED = frozenset({"gzip", "x-gzip", "deflate"})
_PIECE = 256 << 10
_GZIP = zlib.MAX_WBITS | 16
_GZIP_MARK = b"\x1f"


class Unpacking:
    """Decompresses one response.

    Args:
        coding: the `Content-Encoding`; empty for none.
    """

    def __init__(self, coding: str) -> None:
        self._coding = coding.strip().lower()
        self._head = b""
        self._inflating: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes, in pieces of bounded size.

        Raises:
            NetError: they have another content encoding than accepted (also several stacked ones), or than
                declared.
        """
        if self._coding in {"", "identity"}:
            yield data
            return
        if self._coding not in _UNPACKED:
            raise NetError(
                f"The answer is packed as {self._coding[:40]!r}, which was not asked for.",
                advice="Download it with a browser and add the file.",
                failure="unusable",
            )
        if self._inflating is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._inflating = self._head, zlib.decompressobj(self._bits())
        more = False
        while data or more:
            if self._inflating.eof:
                if self._coding == "deflate" or not data.startswith(_GZIP_MARK):
                    return  # padding after the end
                self._inflating = zlib.decompressobj(_GZIP)  # a further gzip member
            try:
                piece = self._inflating.decompress(data, _PIECE)
            except zlib.error as error:
                raise _broken(str(error)) from error
            if piece:
                yield piece
            more = len(piece) == _PIECE  # there may be more inside, also without further bytes
            data = self._inflating.unused_data if self._inflating.eof else self._inflating.unconsumed_tail

    def finish(self) -> None:
        """Check that the data is complete.

        Raises:
            NetError: its end is missing.
        """
        if self._head and (self._inflating is None or not self._inflating.eof):
            raise _broken("its end is missing")

    def _bits(self) -> int:
        """Return the zlib window bits: some servers send raw `deflate` without the zlib header."""
        if self._coding != "deflate":
            return _GZIP
        wrapped = self._head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(self._head[:2]) % 31 == 0
        return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS


def _broken(reason: str) -> NetError:
    return NetError(
        f"The answer cannot be unpacked: {reason}.", advice="Try again later.", failure="unusable"
    )
