"""`http_get` and `http_request`: HTTP requests within the network policy; web pages come as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urljoin, urlsplit

import anyio
from anyio import to_thread
from pydantic import Field, SecretStr

from loom_core.errors import ConfigError, InvalidInputError, NetError
from loom_core.files.html import BLOCKS, INVISIBLE, MAX_DEPTH, parse_html
from loom_core.keys import redact, resolve
from loom_core.net import GuardedClient, NetPolicy
from loom_core.net.url import host_of
from loom_core.plugin_registry import register
from loom_core.tools.builtin.text_file import TextFile, binary_kind
from loom_core.tools.failures import failure_of, failure_of_status
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, ToolOutput

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

    from loom_core.net.client import HttpResponse, Method
    from loom_core.tools.interface import Tool

__all__ = ["HttpAccess", "html_text", "http_get_tool", "http_request_tool"]

_SECONDS = 30.0
_MOST_BYTES = 8 << 20
_SHOWN = 40_000  # characters of a response
_SHOWN_HEADERS = (
    "location",
    "etag",
    "last-modified",
    "retry-after",
    "link",
    "allow",
)  # headers that say what to do next
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_VALUE = re.compile(r"[\t\x20-\x7e]{0,2000}")
# Secrets are configured, models never write them; the client sets the rest.
_RESERVED_HEADERS = re.compile(
    r"auth|cookie|key|token|secret|session|^(host|connection|content-length|te|upgrade|trailer)$"
    r"|^(proxy|transfer|sec|x-forwarded|forwarded|accept-encoding)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"(.* )?((?:env|keyring):\S+)")
_UNAUTHORIZED = (
    "The credentials for this host are missing, or do not allow this. The operator configures them "
    "(`http.headers` of the tools); do not look for others."
)
_PAGES = frozenset({"text/html", "application/xhtml+xml"})


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """Network access of HTTP tools. By default the open internet, and nothing of this machine or network.

    Attributes:
        only: the only allowed hosts, such as `api.example.com` or `*.example.org`.
        allow: hosts and networks that are allowed although they are not on the open internet.
        headers: further headers by host name. A value may be `env:NAME` or `keyring:NAME`, also after a
            word, as in `Bearer env:TOKEN`. It is sent to that host only, over https unless the host is
            allowed by name, and models never see it.
        seconds: timeout of one request, redirects included.
    """

    only: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    headers: Mapping[str, Mapping[str, str]] | None = None
    seconds: float = _SECONDS

    def policy(self) -> NetPolicy:
        """Return the network policy.

        Raises:
            ConfigError: an entry of `allow` is neither a host nor a network, or one of `only` is not a
                host name.
        """
        allowed = NetPolicy.allowing(self.allow)
        return NetPolicy(
            allowed.allowed_hosts,
            allowed.allowed_networks,
            only_hosts=frozenset(map(_host, self.only)),
            max_bytes=_MOST_BYTES,
            total_seconds=self.seconds,
            setting="`allow` of the tool's settings",
        )


@register("tool", "http_get")
def http_get_tool(access: HttpAccess | None = None) -> Tool:
    """Create the tool that reads a web address."""
    asking = _Requester(access or HttpAccess())

    async def http_get(
        context: CallContext,
        url: str,
        start: Annotated[int, Field(ge=0)] = 0,
        raw: bool = False,
    ) -> ToolOutput:
        """Get a web page or the answer of an API. Pages come as text with their links.

        Args:
            context: Of the call.
            url: An http or https address.
            start: From which character of a long text on, as a note at its end says.
            raw: Show the HTML itself.
        """
        return await asking.request("GET", url, {}, b"", context, start=start, raw=raw)

    return tool(http_get, read_only=True)


@register("tool", "http_request")
def http_request_tool(access: HttpAccess | None = None) -> Tool:
    """Create the tool that sends a request to a web address."""
    asking = _Requester(access or HttpAccess())

    async def http_request(
        context: CallContext,
        method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
        url: str,
        body: str | dict[str, Any] | list[Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> ToolOutput:
        """Send an HTTP request to an API, and get its answer. To read a page, `http_get` is better.

        Args:
            context: Of the call.
            method: The method.
            url: An http or https address.
            body: What is sent: an object or a list as JSON, a text as it is.
            headers: Further headers. Credentials are sent by themselves where they are configured.
        """
        given = _check_headers(headers or {})
        content = b""
        if body is not None:
            plain = isinstance(body, str)
            text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
            content = text.encode("utf-8", "replace")  # models write lone surrogates
            given.setdefault("content-type", "text/plain; charset=utf-8" if plain else "application/json")
        return await asking.request(method, url, given, content, context)

    return tool(http_request)


class _Requester:
    """Sends requests within an access configuration, with the configured headers."""

    def __init__(self, access: HttpAccess) -> None:
        self._client = GuardedClient(access.policy())
        self._named = {host_of(each.strip()) for each in access.allow}
        self._headers = {_host(host): headers for host, headers in (access.headers or {}).items()}

    async def request(
        self,
        method: Method,
        url: str,
        headers: Mapping[str, str],
        content: bytes,
        context: CallContext,
        *,
        start: int = 0,
        raw: bool = False,
    ) -> ToolOutput:
        """Send a request, and return the response in the form for models.

        Raises:
            InvalidInputError: the response to a GET is no text, or it is shorter than `start`.
        """
        try:
            address = self._client.check(url)
            configured = await to_thread.run_sync(self._headers_for, address)
            sent = {"accept": "text/html, application/json, text/*;q=0.9, */*;q=0.1", **headers}
            sent |= {name: value.get_secret_value() for name, value in configured.items()}
            secrets = tuple(part for value in configured.values() for part in _parts(value))
            with anyio.move_on_after(context.seconds):
                answer = await self._client.request(method, address, headers=sent, content=content)
                return await to_thread.run_sync(_format_response, method, answer, start, raw, secrets)
        except NetError as error:
            failed = error
        else:
            said = f"There was no answer within {context.seconds} seconds."
            failed = NetError(said, advice="Try again later.", failure="timeout")
        return ToolOutput(str(failed), is_error=True, failure=failure_of(failed, whole_call=True))

    def _headers_for(self, address: str) -> dict[str, SecretStr]:
        """Return the configured headers for an address. Blocks: it may read the keyring."""
        parts = urlsplit(address)
        host = parts.hostname or ""
        if parts.scheme != "https" and host not in self._named:
            return {}
        return {name.lower(): _value(text) for name, text in self._headers.get(host, {}).items()}


def _host(written: str) -> str:
    """Convert a configured host to the form in addresses: 例子.cn is `xn--fsqu00a.cn` there."""
    below = "*." if written.startswith("*.") else ""
    if (host := host_of(written.removeprefix(below))) is None:
        raise ConfigError(
            f"{written!r} is not a host name.",
            advice="Write a name, such as api.example.com or *.example.org.",
        )
    return below + host


def _value(text: str) -> SecretStr:
    match = _REFERENCE.fullmatch(text)
    return SecretStr(f"{match[1] or ''}{resolve(match[2]).get_secret_value()}" if match else text)


def _parts(value: SecretStr) -> tuple[SecretStr, ...]:
    """Return the secrets in a header's value: all of it, and the part after a word such as `Bearer`."""
    _, _, behind = value.get_secret_value().strip().rpartition(" ")
    return (value, SecretStr(behind))


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if _RESERVED_HEADERS.search(name):
            raise InvalidInputError(
                f"The header {name[:64]!r} cannot be given.",
                advice="Leave it out: configured credentials are sent automatically.",
            )
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise InvalidInputError(
                f"{name[:64]!r} is not a header that can be sent.", advice="Use plain ASCII on one line."
            )
    return {name.lower(): value for name, value in headers.items()}


def _format_response(
    method: Method, answer: HttpResponse, start: int, raw: bool, secrets: tuple[SecretStr, ...]
) -> ToolOutput:
    url = redact(answer.url, secrets)
    about = [f"HTTP {answer.status}", *([answer.media_type] if answer.media_type else []), url]
    lines = [
        " · ".join(about),
        *(
            f"{name}: {redact(answer.headers[name], secrets)}"
            for name in _SHOWN_HEADERS
            if name in answer.headers
        ),
    ]
    # Before truncation: redaction would not find the halves of a cut secret.
    text = redact(_text(method, answer, raw), secrets) if answer.body else ""
    if start > len(text):
        raise InvalidInputError(
            f"The text has {len(text):,} characters, so none at {start:,}.", advice="Begin earlier."
        )
    piece = text[start : start + _SHOWN]
    if start + len(piece) < len(text) or start:
        piece += f"\n[characters {start:,}–{start + len(piece):,} of {len(text):,}"
        piece += f"; go on with start={start + _SHOWN}]" if start + _SHOWN < len(text) else "]"
    failure = failure_of_status(answer.status, answer.headers, whole_call=True)
    advice = _UNAUTHORIZED if failure is not None and failure.kind == "unauthorized" else ""
    whole = "\n".join([*lines, *([advice] if advice else []), *(["", piece] if piece else [])])
    return ToolOutput(
        whole,
        is_error=answer.status >= 400,
        metadata={"status": answer.status, "url": url},
        failure=failure,
    )


def _text(method: Method, answer: HttpResponse, raw: bool) -> str:
    read = TextFile.of(answer.body, hint=answer.charset)
    if read is None or answer.media_type.startswith(("image/", "audio/", "video/", "font/")):
        what = binary_kind(answer.body) or answer.media_type or "binary"
        said = f"The answer is not text: it is {what}, {len(answer.body):,} bytes."
        if method != "GET":  # the status says whether it was done; an error would invite a repetition
            return f"[{said}]"
        raise InvalidInputError(said, advice="Look for a page that has it as text.")
    return html_text(read.text, base=answer.url) if answer.media_type in _PAGES and not raw else read.text


_SPACES = re.compile(r"\s+")
_BLANK_LINES = re.compile(r"\n{3,}")
_MARK = re.compile(r"#{1,6} |- ")  # start of a heading or an item
_HEADINGS = {f"h{level}": f"\n{'#' * level} " for level in range(1, 7)}
_LINES = BLOCKS - {"td", "th"} | _HEADINGS.keys() | {"br", "pre", "title"}


def html_text(html: str, *, base: str) -> str:
    """Convert a page to text: headings with `#`, items with `-`, links as `[text](address)`.

    Args:
        html: the page; it may be broken in any way.
        base: its address, to which its links are relative.

    Raises:
        InvalidInputError: its elements are nested too deep.
    """
    tree = parse_html(html)
    if tree is None:
        raise InvalidInputError(
            f"The elements of the page are nested more than {MAX_DEPTH:,} deep.",
            advice="Ask for the HTML itself.",
        )
    skipped = {node.mem_id for node in tree.css(INVISIBLE)}
    writer = _Writer(base)
    # An explicit stack: hostile pages exceed Python's recursion limit.
    stack = [(tree.root, False)] if tree.root is not None else []
    while stack:
        node, leaving = stack.pop()
        if leaving:
            writer.leave(node)
        elif node.tag == "-text":
            writer.text(node.text())
        elif node.mem_id not in skipped:
            writer.enter(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(list(node.iter(include_text=True))))
    return writer.result()


class _Writer:
    def __init__(self, base: str) -> None:
        self._base = base
        self._parts: list[str] = []
        self._pre = 0  # number of open `pre` elements
        self._link: tuple[LexborNode, str, int] | None = None  # the open link, its address, its start

    def text(self, text: str) -> None:
        if not self._pre:
            text = _SPACES.sub(" ", text)
            if not self._parts or self._parts[-1][-1:].isspace():  # collapse; none begins a line
                text = text.lstrip(" ")
        if text:
            self._parts.append(text)

    def enter(self, node: LexborNode) -> None:
        tag = node.tag or ""
        self._border(tag)
        if tag == "a" and self._link is None:
            if address := self._address(node):
                self._link = node, address, len(self._parts)
        elif tag in {"td", "th"}:
            if not self._begins_line():
                self._parts.append(" | ")
        elif tag == "pre":
            self._pre += 1
        elif tag == "li":
            self._parts.append("- ")
        elif mark := _HEADINGS.get(tag):
            self._parts.append(mark)

    def leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if self._link and self._link[0].mem_id == node.mem_id:
            self._end_link(*self._link[1:])
        elif tag in _HEADINGS:
            self._parts.append("\n\n")
        elif tag != "br":
            self._border(tag)
            self._pre -= tag == "pre"

    def result(self) -> str:
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return _BLANK_LINES.sub("\n\n", "\n".join(line for line in lines if line != "-")).strip()

    def _border(self, tag: str) -> None:
        """Start a new line at a block's border; list items have no blank lines between them."""
        if tag in _LINES or (tag == "li" and not self._begins_line()):
            self._parts.append("\n")

    def _begins_line(self) -> bool:
        return not self._parts or self._parts[-1].endswith("\n")

    def _address(self, node: LexborNode) -> str:
        """Return the address of a link, if it leads to another page."""
        href = (node.attributes.get("href") or "").strip()
        try:
            address = urljoin(self._base, href)
        except ValueError:
            return ""
        return address if address.startswith(("http://", "https://")) and not href.startswith("#") else ""

    def _end_link(self, address: str, begins: int) -> None:
        """Make the first line inside the link its text: a link around a card has a heading there."""
        self._link = None
        text = "".join(self._parts[begins:])
        inside = text.lstrip()
        if inside:
            mark = _MARK.match(inside)
            start = len(text) - len(inside) + (mark.end() if mark else 0)
            line, newline, rest = text[start:].partition("\n")
            shown = line.rstrip()
            self._parts[begins:] = [f"{text[:start]}[{shown}]({address}){line[len(shown) :]}{newline}{rest}"]
