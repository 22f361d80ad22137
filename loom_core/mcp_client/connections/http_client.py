"""HTTP client of the SDK's transports for one server, with size limits and readable errors.

The SDK turns every error status into one error without details, and closes the whole connection if one
request fails. So a failed request is answered here with a JSON-RPC error, which reaches its caller.

Imported at first use only: it loads the HTTP library.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import httpx2

from loom_core.errors import LoomError
from loom_core.json_repair import repair, replace_lone_surrogates
from loom_core.jsonc import parse_object
from loom_core.keys import redact
from loom_core.mcp_client.configuration.masking import mask_url
from loom_core.mcp_client.connections.errors import ANSWER_BYTES, Fault, Faults
from loom_core.mcp_client.connections.sanitization import plain_line
from loom_core.mcp_client.connections.tracing import trace_http_request
from loom_core.net import system_trust
from loom_core.tools.failures import failure_of_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from loom_core.mcp_client.configuration.server_config import ServerConfig

__all__ = ["HttpExchange", "fault_of", "hide_secrets"]

_log = logging.getLogger(__name__)

_REFUSAL_BYTES = 1 << 16  # of an answer that is a refusal
_SHOWN = 200  # bytes of what it says
_CONNECT_SECONDS = 10.0
_READ_SECONDS = 300.0  # without a byte; a stream on which the server is only listened to is opened again
_CONNECTIONS = 64
_SESSION = "mcp-session-id"
_OF_CONTENT = frozenset({"content-encoding", "content-length"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class HttpExchange(httpx2.AsyncClient):
    """HTTP client for one server.

    Args of `__init__`:
        config: the server.
        auth: authenticates the requests, or None.
        faults: stores the faults behind the errors that are created here.
        on_fault: called with each fault; with the legacy transport it is the only way to report one.
        answer_bytes: maximum size of an answer.

    Attributes:
        revision: protocol revision of the latest request; empty before the first.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        auth: httpx2.Auth | None,
        faults: Faults,
        on_fault: Callable[[Fault], None] = lambda _fault: None,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        super().__init__(
            headers=dict(config.headers),
            auth=auth,
            verify=system_trust(),
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=max(_READ_SECONDS, config.call_seconds)),
            limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=8),
            # Proxies of the environment lead to the web, not back to this machine.
            trust_env=urlsplit(config.url).hostname not in _LOOPBACK,
        )
        hide_secrets()
        self.revision = ""
        self._name = config.name
        self._sse = config.transport == "sse"
        self._server_auth = auth
        self._secrets = config.secrets
        self._faults = faults
        self._on_fault = on_fault
        self._answer_bytes = answer_bytes

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401
        """Send a request; a message that cannot be delivered or is refused gets an error as its answer."""
        if request.method != "POST":
            return self._read_events(await super().send(request, **options), is_reopened=not self._sse)
        trace_http_request(request, server=self._name)
        self.revision = request.headers.get("mcp-protocol-version", "")
        try:
            response = await super().send(request, **options)
            if response.is_success and _is_json(response):
                return await self._whole(request, response)
            if response.status_code >= 400:
                return await self._refusal(request, response)
            if (fault := _describe_foreign_answer(response)) is not None:
                await response.aclose()
                return self._answer(request, fault)
            return self._read_events(response)
        except httpx2.TransportError as error:
            return self._answer(request, fault_of(error, str(request.url)))
        except LoomError as error:
            fault = Fault("authentication", f"cannot be asked: {error.message}", error.advice, ran="no")
            return self._answer(request, fault)

    async def _whole(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Read the whole content of an answer, if it is not too large."""
        content = await _read(response, self._answer_bytes)
        if content is not None:
            answer = _with_id_of(request, repair(content))
            return _response(request, response.status_code, answer, session=response.headers.get(_SESSION))
        what = f"answered with more than {self._answer_bytes >> 20} MiB, which is not accepted"
        return self._answer(request, Fault("too_large", what, "Ask it for less at once."))

    def _read_events(self, response: httpx2.Response, *, is_reopened: bool = False) -> httpx2.Response:
        """Return a response whose events the SDK can read; any other stays as it is."""
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            return response
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_CONTENT]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            stream=_Events(response, self._answer_bytes, is_reopened=is_reopened),
            request=response.request,
        )

    async def _refusal(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        content = await _read(response, _REFUSAL_BYTES) or b""
        error = _json_rpc_error(content) if _is_json(response) else None
        words = str(error.get("message", "")) if error else _text(response, content)
        said = plain_line(redact(words, self._secrets), most=_SHOWN)
        fault = self._fault_of_status(request, response, said)
        if error is not None and fault.failure not in {"authentication", "busy"} and not fault.lost:
            return _response(request, response.status_code, content)
        return self._answer(request, fault)

    def _fault_of_status(self, request: httpx2.Request, response: httpx2.Response, said: str) -> Fault:
        status = response.status_code
        what = f"answers {status} {_phrase(status)}" + (f": {said}" if said else "")
        if status in {401, 403, 407}:
            problem = getattr(self._server_auth, "problem", None)
            if isinstance(problem, LoomError):
                return Fault(
                    "authentication", f"{what}; {problem.message}", problem.advice, status=status, ran="no"
                )
            advice = (
                "Check the `headers` of its entry: the token is missing, wrong, or not allowed to do this."
            )
            return Fault("authentication", what, advice, status=status, ran="no")
        if _SESSION in request.headers and (
            status == 404 or (status == 400 and "session" in said.casefold())
        ):
            return Fault("connection", "has forgotten the session", status=status, ran="no", lost=True)
        match status:
            case 404 | 405 | 406 | 415:
                advice = 'Check the `url` of its entry; a server of the old kind needs `"type": "sse"`.'
                return Fault("refused", what, advice, status=status, ran="no")
            case 413:
                return Fault("too_large", what, "Give it less at once.", status=status, ran="no")
            case 421:
                advice = (
                    "It does not accept the host name in `url`: allow the name on the server, or use another."
                )
                return Fault("refused", what, advice, status=status, ran="no")
            case _:
                passing = failure_of_status(status, response.headers, whole_call=True)
                if passing is not None:
                    wait = passing.retry_after
                    advice = "Ask again later." if wait is None else f"Ask again after {wait:.0f} s."
                    ran = "no" if passing.nothing_done else "unknown"
                    return Fault("busy", what, advice, status=status, ran=ran, passing=True, retry_after=wait)
                advice = (
                    "Ask again later." if status >= 500 else "Check the `url` and `headers` of its entry."
                )
                return Fault("refused", what, advice, status=status)

    def _answer(self, request: httpx2.Request, fault: Fault) -> httpx2.Response:
        """Build the answer to a failed request from its fault; the SDK matches it to the request."""
        _log.debug("%s %s", request.url.host, fault.what)
        self._on_fault(fault)
        if self._sse:  # answers come another way there; an error would end it, with the address in the log
            return httpx2.Response(202, request=request)
        error = {"code": -32603, "message": fault.what, "data": self._faults.note(fault)}
        content = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        return _response(request, fault.status or 503, content)


class _Events(httpx2.AsyncByteStream):
    """Decompressed content of a stream of events, without lone surrogates.

    Args:
        response: the response that has it.
        most: length up to which a line is kept until its end has come.
        is_reopened: whether the SDK opens the stream again at its end. It gives up after two errors, which a
            proxy or a silent server makes in minutes; so a break counts as the end.
    """

    def __init__(self, response: httpx2.Response, most: int, *, is_reopened: bool) -> None:
        self._response = response
        self._most = most
        self._is_reopened = is_reopened

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._parts():
                yield part
        except httpx2.TransportError:
            if not self._is_reopened:
                raise

    async def _parts(self) -> AsyncIterator[bytes]:
        line: list[bytes] = []
        length = 0
        async for piece in self._response.aiter_bytes():
            line.append(piece)
            length += len(piece)
            if (end := max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1) or length > self._most:
                line[-1] = piece[:end]
                yield replace_lone_surrogates(b"".join(line))
                line = [piece[end:]]
                length = len(line[0])
        yield replace_lone_surrogates(b"".join(line))

    async def aclose(self) -> None:
        await self._response.aclose()


def _response(
    request: httpx2.Request, status: int, content: bytes, *, session: str | None = None
) -> httpx2.Response:
    headers = {"content-type": "application/json"} | ({_SESSION: session} if session else {})
    return httpx2.Response(status, headers=headers, content=content, request=request)


def _describe_foreign_answer(response: httpx2.Response) -> Fault | None:
    """Return the fault of an answer that no MCP server gives, a redirect or a page; None for any other."""
    if response.is_redirect:
        where = mask_url(plain_line(response.headers["location"], most=_SHOWN))
        what = f"redirects to {where}, to which the headers are not sent"
        advice = "If that is the server, write its address into `url`."
        return Fault("refused", what, advice, ran="no")
    if response.headers.get("content-type", "").lower().startswith("text/html"):
        advice = "Check the `url` of its entry, and whether one has to log in there."
        return Fault("refused", "answers with a web page", advice, ran="no")
    return None


async def _read(response: httpx2.Response, most: int) -> bytes | None:
    """Read the decompressed content; None if it is larger."""
    content = bytearray()
    try:
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > most:
                return None
    finally:
        await response.aclose()
    return bytes(content)


def fault_of(error: httpx2.HTTPError, url: str) -> Fault:
    """Convert an error of the HTTP library to a `Fault`."""
    if isinstance(error, httpx2.HTTPStatusError):
        status = error.response.status_code
        failure = "authentication" if status in {401, 403, 407} else "refused"
        what, advice = f"answers {status} {_phrase(status)}", "Check `url` and `headers` of its entry."
        return Fault(failure, what, advice, status=status, ran="no", lost=True, passing=status >= 500)
    parts = urlsplit(url)
    where = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    certificate = _cause(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        what = f"at {where} has a certificate that is not trusted: {certificate.verify_message}"
        advice = "Let the system trust its certificate authority, or set SSL_CERT_FILE to it."
        return Fault("connection", what, advice, ran="no", lost=True)
    if _cause(error, ssl.SSLError) is not None:
        advice = "Check `url`: http and https may be confused, or the port."
        return Fault("connection", f"at {where} failed the TLS handshake", advice, ran="no", lost=True)
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.ProxyError():
            advice = "Check that it runs, and `url` of its entry."
            why = "did not accept the connection in time" if isinstance(error, httpx2.ConnectTimeout) else ""
            what = f"at {where} {why or 'cannot be reached'}"
            return Fault("connection", what, advice, ran="no", lost=True, passing=True)
        case httpx2.PoolTimeout():
            advice = "Ask it for less at the same time."
            return Fault("busy", "has too many open requests of Loom", advice, ran="no", passing=True)
        case httpx2.UnsupportedProtocol():
            return Fault(
                "connection", "has no http or https address", "Check its `url`.", ran="no", lost=True
            )
        case httpx2.ReadTimeout() | httpx2.WriteTimeout():
            return Fault("timeout", "sent no data for too long", passing=True)
        case _:
            return Fault("interrupted", "closed the connection", passing=True)


def _cause(error: BaseException, kind: type[ssl.SSLError]) -> Any:  # noqa: ANN401 - of the kind asked for
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, kind):
        seen = seen.__cause__ or seen.__context__
    return seen


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


def _json_rpc_error(content: bytes) -> dict[str, Any] | None:
    error = (parse_object(content) or {}).get("error")
    return cast("dict[str, Any]", error) if isinstance(error, dict) else None


def _with_id_of(request: httpx2.Request, content: bytes) -> bytes:
    """Return an answer with the id of its request: no other one comes, and the SDK waits for that id."""
    answer, asked = parse_object(content), parse_object(request.content)
    if answer is None or asked is None or not {"id", "method"} <= asked.keys():
        return content
    if "method" in answer or answer.get("id") == asked["id"]:
        return content
    return json.dumps({**answer, "id": asked["id"]}).encode()


def _text(response: httpx2.Response, content: bytes) -> str:
    """Return a refusal's text for people; empty for a page."""
    plain = response.headers.get("content-type", "").lower().startswith(("text/plain", "application/json"))
    return content.decode("utf-8", "replace") if plain else ""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


class _AddressMaskFilter(logging.Filter):
    """Logging filter that masks URLs."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(self._mask(record.args))
        return True

    def _mask(self, values: tuple[object, ...]) -> Iterator[object]:
        for value in values:
            text = str(value)
            yield mask_url(text) if text.startswith(("http://", "https://")) else value


class _WarningsOnlyFilter(logging.Filter):
    """Logging filter that drops lines below WARNING: they hold URLs, session ids and whole messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING


_ADDRESS_MASK = _AddressMaskFilter()
_WARNINGS_ONLY = _WarningsOnlyFilter()


def hide_secrets() -> None:
    """Keep secrets out of the log; may be called again."""
    logging.getLogger("httpx2").addFilter(_ADDRESS_MASK)
    for name in ("mcp.client.streamable_http", "mcp.client.sse"):
        logging.getLogger(name).addFilter(_WARNINGS_ONLY)
