"""Two nodes behind a balancer that sends each request to the next one, whatever it belongs to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from loom_core.errors import ConfigError
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.serving.http_settings import HttpSettings
from loom_core.server.serving.nodes import Nodes, check_node_url
from tests.fixtures.kitchen import Kitchen
from tests.fixtures.serving import serving
from tests.fixtures.store_servers import free_port
from tests.fixtures.task_client import answer, cancel, connected, get, until
from tests.unit.server.conftest import text
from tests.unit.server.sample import sample_server

pytestmark = pytest.mark.slow

KEYS = ("k" * 32,)


class Balancer(httpx2.AsyncBaseTransport):
    """Sends each request to the next of several servers."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._targets = cycle(map(httpx2.URL, urls))
        self._wire = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        target = next(self._targets)
        request.url = request.url.copy_with(host=target.host, port=target.port)
        request.headers["host"] = target.netloc.decode()
        return await self._wire.handle_async_request(request)

    async def aclose(self) -> None:
        await self._wire.aclose()


@asynccontextmanager
async def balanced(
    servers: Sequence[LoomServer], settings: Sequence[HttpSettings] = ()
) -> AsyncGenerator[httpx2.AsyncClient]:
    """Serve by several nodes; gives a client of their balancer."""
    async with AsyncExitStack() as stack:
        urls = []
        for server, given in zip(servers, settings or [node() for _ in servers], strict=True):
            server.state_keys = lambda: KEYS
            urls.append(await stack.enter_async_context(serving(server, given)))
        yield await stack.enter_async_context(httpx2.AsyncClient(transport=Balancer(urls), timeout=30))


def node(**options: int) -> HttpSettings:
    port = free_port()
    return HttpSettings(port=port, node_url=f"http://127.0.0.1:{port}", **options)


def through(web: httpx2.AsyncClient):
    """The transport of a client through a balancer."""
    return streamable_http_client("http://balancer/mcp", http_client=web)


def initialize() -> dict[str, object]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def headers(session: str = "") -> dict[str, str]:
    accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    return {**accept, "Mcp-Session-Id": session} if session else accept


async def test_a_session_goes_on_whichever_node_gets_its_requests():
    changed = anyio.Event()

    async def on_message(_message):
        changed.set()

    async with (
        balanced([sample_server(), sample_server()]) as web,
        Client(through(web), mode="legacy", message_handler=on_message) as client,
    ):
        for number in range(6):
            added = await client.call_tool("add", {"name": f"来源{number}"})
            assert (
                len(added.structured_content["names"]) == number + 2
            )  # by the node that has the others, too
            assert (await client.read_resource("loom://产品文档/一")).contents[0].text == "你好，世界"
        await changed.wait()


async def say(_context, _params):
    return ElicitResult(action="accept", content={"name": "李明"})


async def test_the_answer_to_a_question_finds_the_call_that_asks():
    async with (
        balanced([Kitchen().server, Kitchen().server]) as web,
        Client(through(web), mode="legacy", elicitation_callback=say) as client,
    ):
        for _ in range(3):
            assert text(await client.call_tool("ask_first", {})) == "李明"


async def test_a_task_is_found_answered_and_called_off_through_any_node():
    kitchens = [Kitchen(), Kitchen()]
    async with (
        balanced([each.server for each in kitchens]) as web,
        connected(through(web), elicitation_callback=say) as (client, start),
    ):
        for _ in range(2):  # one at each node
            task = await start("chat")
            await until(client, task, "input_required")
            await answer(client, task, name={"action": "accept", "content": {"name": "王芳"}})
            done = await until(client, task, "completed")
            assert done.result["structuredContent"] == {"said": "王芳, timed_out"}
        cooking = await start("cook", dish="汤")
        await until(client, cooking, "working")
        await cancel(client, cooking)
        await until(client, cooking, "cancelled")
        assert (await get(client, cooking)).status == "cancelled"
    assert sorted(len(each.called_off) for each in kitchens) == [0, 1]


async def test_a_session_whose_node_is_gone_is_to_be_begun_again():
    staying, going = node(), node()
    async with balanced([sample_server()], [staying]) as web:
        async with serving_node(going) as url, httpx2.AsyncClient() as direct:
            begun = await direct.post(url, json=initialize(), headers=headers())
            session = begun.headers["mcp-session-id"]
            assert begun.status_code == 200
            ended = await web.request("DELETE", "http://balancer/mcp", headers=headers(session))
            assert ended.status_code == 200  # passed on
            begun = await direct.post(url, json=initialize(), headers=headers())
            session = begun.headers["mcp-session-id"]
        refused = await web.post("http://balancer/mcp", json=initialize(), headers=headers(session))
    assert refused.status_code == 404
    assert refused.json()["error"] == "no_session"
    assert "Begin a new one with `initialize`" in refused.json()["error_description"]


@asynccontextmanager
async def serving_node(settings: HttpSettings) -> AsyncGenerator[str]:
    """A node that does not end with the others."""
    server = sample_server()
    server.state_keys = lambda: KEYS
    async with serving(server, settings) as url:
        yield url


async def test_a_refusal_by_the_other_node_comes_back_and_its_log_names_the_client(caplog, monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    async with balanced([sample_server(), sample_server()]) as web:
        begun = await web.post("http://balancer/mcp", json=initialize(), headers=headers())
        session = headers(begun.headers["mcp-session-id"])
        for _ in range(2):
            ended = await web.request("DELETE", "http://balancer/mcp", headers=session)
            assert len(ended.headers.get_list("date")) == 1
            caplog.clear()
            client = {**session, "X-Forwarded-For": "192.0.2.7"}
            refused = await web.post("http://balancer/mcp", json=initialize(), headers=client)
            assert (refused.status_code, refused.json()["error"]) == (404, "no_session")
            assert "refused local at 192.0.2.7: POST '/mcp' (no_session)" in caplog.messages


@pytest.mark.hostile("HTTP requests")
@pytest.mark.parametrize(("server", "keys"), [("sample", ("x" * 32,)), ("other", KEYS)])
async def test_an_id_that_no_node_of_this_server_gave_leads_nowhere(server, keys):
    forged = Nodes("http://127.0.0.1:9", server=server, keys=lambda: keys).seal("a")
    async with balanced([sample_server()]) as web:
        for session in (forged, "v1.AAAA", "a" * 32):
            refused = await web.post("http://balancer/mcp", json=initialize(), headers=headers(session))
            assert (refused.status_code, refused.json()["error"]) == (404, "no_session")


async def test_a_wrong_address_is_logged_and_not_followed_in_circles(caplog):
    first, second = node(), node()
    confused = HttpSettings(port=second.port, node_url=first.node_url)  # says that it is the first
    async with balanced([sample_server(), sample_server()], [node(), confused]) as web:
        ids = [Nodes(first.node_url, server="sample", keys=lambda: KEYS).seal("a")]
        direct = httpx2.Headers({**headers(ids[0]), "Loom-Relayed": "1"})
        answers = [await web.post("http://balancer/mcp", json=initialize(), headers=direct) for _ in range(2)]
    told = {each.status_code: each.json() for each in answers}
    assert told[404]["error"] == "no_session"
    assert told[421]["error"] == "node"
    assert first.node_url not in str(told)  # addresses are for the log
    assert f"{first.node_url} was passed on to" in caplog.text


@pytest.mark.parametrize(
    "url", ["10.0.0.5:8765", "http://", "ftp://a", "http://a/mcp", "http://u:p@a", "http://a:x", "http://a?b"]
)
def test_an_address_of_a_node_is_a_scheme_a_host_and_a_port(url):
    with pytest.raises(ConfigError, match="cannot be the address of a node"):
        check_node_url(url)


def test_an_address_of_a_node_ends_without_a_slash():
    assert check_node_url("http://10.0.0.5:8765/") == "http://10.0.0.5:8765"
    assert check_node_url("https://节点.example") == "https://节点.example"


def test_nodes_need_a_key_that_they_share():
    with pytest.raises(ConfigError, match="LOOM_STATE_KEYS"):
        Nodes("http://a", server="sample", keys=tuple)
