"""The guarded HTTP client: one request with its redirects, within limits of place, time and size."""

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

__all__ = ["ACCEPTED", "HttpClient", "HttpResponse", "Method", "Unpacking"]

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
    """An answer, whole and unpacked.

    Attributes:
        url: where it came from in the end, after redirects.
        status: HTTP status.
        headers: by name in lower case; repeated ones joined by a comma.
        body: unpacked bytes.
    """

    url: str = field(repr=False)
    status: int
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)

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
    not used. A connection lasts for one request, or is kept for the next ones to the same origin; then the
    client is an asynchronous context manager, and is used in one event loop.

    Args:
        policy: what is allowed, and the limits.
        resolve: finds the addresses of names.
        tls: what certificates are checked against; by default those that the system trusts.
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
        """Close the connections that are kept; those in use, when their requests have ended.

        It can be used again afterwards.
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
        """Ask, and read the whole answer.

        Redirects of GET and HEAD are followed; other methods get the redirect itself as the answer. At
        another origin only harmless headers are sent on.

        Args:
            method: HTTP method.
            url: http or https address.
            headers: further headers; `User-Agent` and `Accept-Encoding` are set.
            content: what is sent.
            seconds: for everything together, where that is less than the policy grants.
            repeatable: whether it does no harm if it arrives twice; by default what HTTP says of its method.
                A server may close a kept connection just when it is used, so that it is unknown what it has
                done: so only what may be repeated goes over one, and is sent once more, over a new one.

        Returns:
            The answer, whatever its status.

        Raises:
            NetError: the address may not be asked, no host answers in time, or the answer is too large or
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
            f"{redact_url(target)} was reached by more than {self._policy.max_redirects} redirects.",
            advice="Open it in a browser and give the address where it ends.",
            failure="unusable",
        )

    async def _send_with_retry(self, request: _Request, target: httpx2.URL) -> HttpResponse:
        try:
            return await self._send(request, target, fresh=not request.repeatable)
        except NetError:
            if not request.swallowed:
                raise
            _log.debug("%s had closed the connection that was kept", redact_url(target))
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
                f"{host} could not be connected within {self._policy.connect_seconds:g} seconds.",
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
            for piece in unpacking.feed(data):
                size += len(piece)
                pieces.append(piece)
                if max(received, size) > limit:
                    raise _too_large(target, limit, "it", advice=self._policy.smaller)
        unpacking.finish()
        return b"".join(pieces)


@dataclass(slots=True)
class _Request:
    """A request on its way.

    Attributes:
        method: HTTP method.
        headers: by name in lower case.
        content: what is sent.
        repeatable: whether it does no harm if it arrives twice.
        sent: whether its sending has begun.
        connected: whether a connection was made for it.
        swallowed: whether it went over one that was kept, and no answer has begun.
    """

    method: Method
    headers: dict[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    repeatable: bool
    sent: bool = False
    connected: bool = False
    swallowed: bool = False

    async def note(self, event: str, _: object) -> None:
        """Hear from the connection what it does."""
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
            f"{redact_url(target)} redirects to what is no web address.",
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
"""Requested encodings. Every server speaks these, and both are in the standard library."""

_UNPACKED = frozenset({"gzip", "x-gzip", "deflate"})
_PIECE = 256 << 10
_GZIP = zlib.MAX_WBITS | 16
_GZIP_MARK = b"\x1f"


class Unpacking:
    """Unpacks one answer.

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
            NetError: they are packed as was not asked for (also as several codings on top of each other), or
                not as the answer says.
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
                self._inflating = zlib.decompressobj(_GZIP)  # a further member of the same answer
            try:
                piece = self._inflating.decompress(data, _PIECE)
            except zlib.error as error:
                raise _broken(str(error)) from error
            if piece:
                yield piece
            more = len(piece) == _PIECE  # there may be more inside, also without further bytes
            data = self._inflating.unused_data if self._inflating.eof else self._inflating.unconsumed_tail

    def finish(self) -> None:
        """Say that no more comes.

        Raises:
            NetError: the end is missing.
        """
        if self._head and (self._inflating is None or not self._inflating.eof):
            raise _broken("its end is missing")

    def _bits(self) -> int:
        """How to read what begins so: some servers leave out what the standard has around `deflate`."""
        if self._coding != "deflate":
            return _GZIP
        wrapped = self._head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(self._head[:2]) % 31 == 0
        return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS


def _broken(reason: str) -> NetError:
    return NetError(
        f"The answer cannot be unpacked: {reason}.", advice="Try again later.", failure="unusable"
    )
