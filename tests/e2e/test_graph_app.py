"""The graph as an MCP App: the server's own page in a browser, and the official bridge on the host's side."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures import node as nodejs
from tests.fixtures.browser import Browser, Page

if TYPE_CHECKING:
    from tests.e2e.jsonrpc import StdioServer

pytestmark = pytest.mark.slow

_SOURCES = Path(__file__).parent / "apps"
_EVERYTHING = {"serverTools": {}}
# What a host has to enforce where a page declares no domains (MCP Apps, 2026-01-26).
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none'"
)
_OTHER = "Lyon lies on the Rhône, and Joseph Jacquard was born in Lyon."
_DOCUMENT = """# 花楼

## Ada Lovelace

Ada Lovelace wrote about the Analytical Engine. Charles Babbage designed the Analytical Engine in London.

## 提花机

里昂的雅卡尔改进了提花机。The Jacquard loom was invented in Lyon. Charles Babbage visited Lyon.
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(shared_kb: Callable[..., AbstractContextManager[StdioServer]]) -> Iterator[StdioServer]:
    with shared_kb() as server:
        added = server.call("add", text=_DOCUMENT, title="花楼与分析机", source="织")
        server.call("job", id=added["structuredContent"]["job"]["id"], action="wait")
        added = server.call("add", text=_OTHER, title="Rivers", source="织")
        server.call("job", id=added["structuredContent"]["job"]["id"], action="wait")
        yield server


@pytest.fixture(scope="module")
def app(server: StdioServer) -> dict[str, Any]:
    """The page that the tool's definition leads to, as a host reads it."""
    tools = {tool["name"]: tool for tool in server.request("tools/list")["tools"]}
    (content,) = server.request("resources/read", {"uri": tools["graph"]["_meta"]["ui"]["resourceUri"]})[
        "contents"
    ]
    return content


@pytest.fixture(scope="module")
def host(server: StdioServer, app: dict[str, Any]) -> Iterator[str]:
    """The address of the host's page."""
    packages = nodejs.installed(_SOURCES) / "node_modules"
    served = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server, app["text"], packages))
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}/"
    served.shutdown()
    served.server_close()
    thread.join(5)


def _handler(server: StdioServer, page: str, packages: Path) -> type[SimpleHTTPRequestHandler]:
    alone = threading.Lock()  # the connection to the server is one

    class Handler(SimpleHTTPRequestHandler):
        extensions_map = {".js": "text/javascript", ".mjs": "text/javascript"}  # noqa: RUF012

        def do_GET(self) -> None:
            if self.path == "/":
                self._answer((_SOURCES / "host.html").read_bytes(), "text/html")
            elif self.path == "/view":
                self._answer(page.encode(), "text/html; charset=utf-8", policy=_POLICY)
            else:
                super().do_GET()

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with alone:
                result = server.request(
                    "tools/call", {"name": asked["name"], "arguments": asked["arguments"]}
                )
            self._answer(json.dumps(result).encode(), "application/json")

        def translate_path(self, path: str) -> str:
            return str(packages / path.removeprefix("/packages/"))

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, body: bytes, kind: str, *, policy: str = "") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if policy:
                self.send_header("Content-Security-Policy", policy)
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def _shown(
    browser: Browser, host: str, *, capabilities: dict[str, Any], context: dict[str, Any], **given: object
) -> Generator[Page]:
    with browser.page(host, height=900) as page:
        page.wait("window.ready")
        asked = {"capabilities": capabilities, "context": context, "given": given}
        page.run(f"show({json.dumps(asked)})")
        yield page


def test_the_page_is_of_the_kind_that_hosts_show_and_may_ask_no_one(app: dict[str, Any]) -> None:
    assert app["mimeType"] == "text/html;profile=mcp-app"
    assert app["_meta"] == {"ui": {"csp": {}, "prefersBorder": True}}
    assert app["text"].startswith("<!doctype html>")


def test_only_the_tool_leads_to_the_page(server: StdioServer) -> None:
    listed = server.request("resources/list")["resources"]
    assert not [each for each in listed if each["uri"].startswith("ui:")]
    tools = server.request("tools/list")["tools"]
    assert [tool["name"] for tool in tools if tool.get("_meta", {}).get("ui")] == ["graph"]


def test_a_result_is_shown_in_the_theme_and_the_language_of_the_host(browser: Browser, host: str) -> None:
    context = {"theme": "dark", "locale": "zh-CN", "containerDimensions": {"maxHeight": 500}}
    with _shown(browser, host, capabilities={}, context=context, entity="Ada Lovelace") as page:
        assert page.wait("document.querySelector('#panel h2')?.textContent", frame="app") == "Ada Lovelace"
        assert page.run("document.documentElement.dataset.theme", frame="app") == "dark"
        assert "关系" in page.run("document.querySelector('#panel').textContent", frame="app")
        assert page.run("host.sizes") == [{"height": 500}]
        assert page.run("graph.nodes.length", frame="app") > 1
        # This host lets it call nothing.
        assert "显示更多联系" not in page.run("document.querySelector('#panel').textContent", frame="app")
        page.run("host.bridge.setHostContext({theme: 'light', locale: 'en-GB'})")
        page.wait("document.documentElement.dataset.theme === 'light'", frame="app")
        assert "Relations" in page.run("document.querySelector('#panel').textContent", frame="app")


def test_a_click_lets_the_host_ask_for_more_and_for_a_passage(browser: Browser, host: str) -> None:
    with _shown(
        browser, host, capabilities=_EVERYTHING, context={}, entity="Ada Lovelace", source="织"
    ) as page:
        page.wait("document.querySelector('#panel h2')?.textContent === 'Ada Lovelace'", frame="app")
        page.run("choose(graph.nodes.find((node) => node.name === 'Analytical Engine'))", frame="app")
        before = page.run("graph.edges.length", frame="app")
        page.click("#panel .actions button:nth-child(3)", frame="app")
        page.wait(f"graph.edges.length > {before}", frame="app")
        page.click("#panel .rows button.quiet", frame="app")
        text = page.wait("document.querySelector('#panel article .text')?.textContent", frame="app")
        assert "Analytical Engine" in text
        graph, fetch = page.run("host.calls")
        assert graph == {
            "name": "graph",
            "arguments": {"entity": "Analytical Engine", "limit": 30, "source": "织"},
        }
        assert fetch["name"] == "fetch"
        assert fetch["arguments"]["source"] == "织"


def test_a_path_is_shown_as_one(browser: Browser, host: str) -> None:
    with _shown(
        browser, host, capabilities={}, context={}, entity="Ada Lovelace", to="Joseph Jacquard"
    ) as page:
        assert (
            page.wait("document.querySelector('#panel h2')?.textContent", frame="app")
            == "Ada Lovelace → Joseph Jacquard"
        )
        assert page.run("document.querySelectorAll('#panel ol > li').length", frame="app") >= 2


def test_an_error_is_said_in_its_own_words(browser: Browser, host: str) -> None:
    with _shown(browser, host, capabilities={}, context={}, entity="Unknown Name") as page:
        said = page.wait("document.querySelector('#panel .empty')?.textContent", frame="app")
        assert "There is no entity like" in said


def test_full_screen_is_offered_where_the_host_has_it(browser: Browser, host: str) -> None:
    context = {"displayMode": "inline", "availableDisplayModes": ["inline", "fullscreen"]}
    with _shown(browser, host, capabilities={}, context=context, entity="Lyon") as page:
        page.wait("document.querySelector('#panel h2') !== null", frame="app")
        page.click(".switches button", frame="app")
        page.wait("host.modes.length")
        page.wait("document.querySelector('.switches button').hidden", frame="app")
        assert page.run("host.modes") == ["fullscreen"]


def test_a_host_can_take_the_page_down(browser: Browser, host: str) -> None:
    with _shown(browser, host, capabilities={}, context={}, entity="Lyon") as page:
        assert page.run("host.bridge.teardownResource({})") == {}
