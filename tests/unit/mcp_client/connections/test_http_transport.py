from __future__ import annotations

import json
import logging
import socket
import ssl
import threading

import anyio
import pytest

from loom_core.errors import LoomError, ServerError
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.connections.lifecycle import ReconnectPolicy
from tests.unit.mcp_client.asking_server import asking_server


@pytest.fixture
def web(local_servers):
    return local_servers()


def entry(url, **fields):
    fields.setdefault("start_seconds", 20)
    return ServerConfig(name="web", transport="http", url=url, **fields)


def said(result) -> str:
    return result.content[0].text


async def refused(connected, config, **options) -> ServerError:
    """Why a server cannot be connected to."""
    async with connected(config, **options) as connection:
        with pytest.raises(ServerError) as caught:
            await connection.ready(20)
        assert connection.state == "failed"
    return caught.value


@pytest.mark.parametrize(
    ("status", "body", "failure", "words"),
    [
        (401, b"", "authentication", "answers 401 Unauthorized. Check the `headers`"),
        (403, "不行".encode(), "authentication", "answers 403 Forbidden: 不行"),
        (404, b"<html>", "refused", '"type": "sse"'),
        (405, b"", "refused", "answers 405 Method Not Allowed"),
        (413, b"", "too_large", "Give it less at once."),
        (421, b"Invalid Host header", "refused", "Invalid Host header. It does not accept"),
        (429, b"", "busy", "Ask again later."),
        (500, b"oops\x1b[31m", "refused", "answers 500 Internal Server Error: oops. Ask"),
        (503, b"", "busy", "Ask again later."),
        (799, b"", "refused", "answers 799"),
    ],
)
async def test_a_status_is_told_in_words_with_advice(connected, web, status, body, failure, words):
    url = web.answers(
        "/mcp",
        body,
        status=status,
        Content_Type="text/html" if body[:1] == b"<" else "text/plain",
    )
    error = await refused(connected, entry(url))
    assert (error.failure, error.status) == (failure, status)
    assert words in str(error)


@pytest.mark.parametrize(
    ("status", "headers", "wait", "not_run"),
    [
        ("429 Slow", "Retry-After: 7\r\n", 7.0, True),
        ("429 Slow", "", None, True),
        ("503 Busy", "Retry-After: 2\r\n", 2.0, True),
        ("503 Busy", "", None, False),
        ("502 Gateway", "", None, False),
    ],
)
async def test_a_server_that_is_busy_says_when_to_come_back_and_whether_it_ran_the_call(
    connected, web, status, headers, wait, not_run
):
    body = b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "later"}}'

    def busy(connection):
        head = f"HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async with connected(entry(Scripted(web, **{"tools/call": busy}).url)) as connection:
        with pytest.raises(ServerError, match="later") as caught:
            await connection.call_tool("write", {})
    error = caught.value
    assert (error.failure, error.retry_after, error.not_run) == ("busy", wait, not_run)
    assert ("It is not known whether `write` was carried out" in error.message) == (not not_run)


async def test_the_first_refusal_is_told_and_not_what_the_older_way_of_opening_came_to(connected, web):
    def answer(asked, connection):
        status = "401 No" if b"server/discover" in asked.body else "400 Bad"
        connection.sendall(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())

    web.routes["/mcp"] = answer
    assert (await refused(connected, entry(web.url("/mcp")))).status == 401
    assert len(web.asked) == 2


@pytest.mark.hostile("MCP servers")
async def test_no_secret_is_told_though_the_server_repeats_it(connected, web):
    token = "tok-very-secret"
    url = web.answers("/mcp", f"bad token {token}".encode(), status=401, Content_Type="text/plain")
    error = await refused(connected, entry(url, headers={"Authorization": f"Bearer {token}"}))
    assert "bad token [secret]" in str(error)
    assert web.asked[0].headers["authorization"] == f"Bearer {token}"


async def test_the_log_shows_no_part_of_the_address_that_may_be_a_key(connected, serving, caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(asking_server()) as url:
        config = entry(f"{url}?key=sk-geheim", headers={"X-Key": "sk-geheimer"}, era="legacy")
        async with connected(config) as connection:
            await connection.list_tools()
    assert "HTTP Request: POST http://127.0.0.1:" in caplog.text
    assert "sk-geheim" not in caplog.text
    assert "mcp.client.streamable_http" not in {record.name for record in caplog.records}, "nor session ids"


@pytest.mark.hostile("MCP servers")
async def test_headers_are_not_taken_along_to_another_place(connected, web, local_servers):
    other = local_servers()
    url = web.answers("/mcp", status=307, Location=other.url("/mcp?key=sk-geheim"))
    error = await refused(connected, entry(url, headers={"X-Key": "k"}))
    assert f"redirects to {other.url('/mcp')}?…" in str(error)
    assert error.advice == "If that is the server, write its address into `url`."
    assert not other.asked


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("<html>请登录</html>".encode(), "text/html; charset=utf-8", "a web page. Check the `url`"),
        (b"", "application/json", "not an MCP message. Check its `url`"),
        (b'{"a":', "application/json", "not an MCP message. Check its `url`"),
    ],
)
async def test_an_answer_that_comes_from_no_server_of_mcp_is_told(connected, web, body, kind, words):
    error = await refused(connected, entry(web.answers("/mcp", body, Content_Type=kind)))
    assert words in str(error)
    assert error.failure in {"refused", "unreadable"}


@pytest.mark.hostile("MCP servers")
async def test_a_secret_is_hidden_before_a_refusal_is_cut_through_it(connected, web):
    body = b"x" * 185 + b"sk-geheim-1234567890"
    url = web.answers("/mcp", body, status=403, Content_Type="text/plain")
    error = await refused(connected, entry(url, headers={"Authorization": "Bearer sk-geheim-1234567890"}))
    assert "x[secret]" in str(error)
    assert "sk-" not in str(error)


async def test_a_server_that_is_not_there_is_named_by_its_address(connected, port):
    error = await refused(connected, entry(f"http://127.0.0.1:{port}/mcp?key=sk-geheim"))
    assert (error.failure, f"127.0.0.1:{port} cannot be reached" in str(error)) == ("connection", True)
    assert "sk-geheim" not in str(error)


async def test_a_certificate_that_is_not_trusted_is_told(connected, local_servers, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    error = await refused(connected, entry(local_servers(context).url("/mcp")))
    assert "certificate that is not trusted" in str(error)
    assert "SSL_CERT_FILE" in error.advice


@pytest.fixture
def certificate(tmp_path):
    """A self-signed certificate, with its key, as a file."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path / "certificate.pem"
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form) + signed)
    return path


@pytest.mark.slow
async def test_what_hangs_costs_its_deadline(connected, web):
    web.routes["/mcp"] = lambda asked, connection: connection.recv(1)
    async with connected(entry(web.url("/mcp"), start_seconds=0.5)) as connection:
        with pytest.raises(ServerError, match=r"within 0\.5 s"):
            await connection.ready(20)


class Scripted:
    """A server of the handshake era, by hand: answers each method with what the test says."""

    def __init__(self, web, *, as_events=False, **results) -> None:
        self.as_events = as_events
        self.results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
            },
            "tools/list": {"tools": []},
            **results,
        }
        self.asked = []
        web.routes["/mcp"] = self.answer
        self.url = web.url("/mcp")

    def answer(self, asked, connection) -> None:
        message = json.loads(asked.body) if asked.body else {}
        self.asked.append(message.get("method"))
        if "id" not in message:
            status = "202 Accepted" if message else "405 No"
            connection.sendall(
                f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
            )
            return
        result = self.results.get(message["method"])
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if callable(result):
            result(connection)
            return
        answer |= {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
        body = json.dumps(answer).encode()
        kind = "application/json"
        if self.as_events:
            body, kind = b"event: message\ndata: " + body + b"\n\n", "text/event-stream"
        head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: {kind}\r\n\r\n"
        connection.sendall(head.encode() + body)


@pytest.mark.hostile("MCP servers")
async def test_an_answer_that_is_too_large_is_refused_and_the_connection_stays(connected, web):
    def huge(connection) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
        for _ in range(50):
            connection.sendall(b" " * (1 << 20))

    scripted = Scripted(web, **{"tools/call": huge})
    async with connected(entry(scripted.url)) as connection:
        with pytest.raises(ServerError, match="more than 32 MiB") as caught:
            await connection.call_tool("x", {})
        assert caught.value.failure == "too_large"
        assert (await connection.list_tools()).tools == []
        assert connection.state == "ready"


@pytest.mark.parametrize("as_events", [False, True])
async def test_a_result_that_does_not_say_of_what_type_it_is_counts_as_complete(connected, web, as_events):
    kept = {"ttlMs": 0, "cacheScope": "private"}
    scripted = Scripted(
        web,
        as_events=as_events,
        **{
            "server/discover": {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
                **kept,
            },
            "tools/list": {"tools": [], **kept},
            "tools/call": {"content": [{"type": "text", "text": "好"}]},
        },
    )
    async with connected(entry(scripted.url)) as connection:
        await connection.ready(20)
        assert connection.facts.modern
        assert said(await connection.call_tool("x", {})) == "好"


@pytest.mark.hostile("MCP servers")
@pytest.mark.parametrize("as_events", [False, True])
async def test_half_an_emoji_costs_its_character_only(connected, web, as_events):
    result = {"content": [{"type": "text", "text": "\ud83d|\\ud83d|😀"}]}
    scripted = Scripted(web, as_events=as_events, **{"tools/call": result})
    async with connected(entry(scripted.url)) as connection:
        assert said(await connection.call_tool("x", {})) == "\ufffd|\\ud83d|😀"


@pytest.mark.hostile("MCP servers")
@pytest.mark.parametrize("id_", [None, "server-error", 12345])
async def test_an_answer_with_another_id_is_that_of_its_request(connected, web, id_):
    error = {"code": -32000, "message": "the index is locked"}
    body = json.dumps({"jsonrpc": "2.0", "id": id_, "error": error}).encode()
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n"
    scripted = Scripted(web, **{"tools/call": lambda connection: connection.sendall(head + body)})
    async with connected(entry(scripted.url)) as connection:
        with pytest.raises(ServerError, match="the index is locked"):
            await connection.call_tool("x", {}, seconds=20)


async def test_a_call_during_which_the_connection_breaks_off_is_not_made_again(connected, web):
    scripted = Scripted(web, **{"tools/call": lambda connection: connection.close()})
    async with connected(entry(scripted.url)) as connection:
        with pytest.raises(ServerError, match=r"closed the connection\. It is not known") as caught:
            await connection.call_tool("write", {})
        assert caught.value.failure == "interrupted"
        assert scripted.asked.count("tools/call") == 1
        assert (await connection.list_tools()).tools == [], "it costs this call only"
        assert scripted.asked.count("initialize") == 1


@pytest.fixture
def port():
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_server_that_is_restarted_is_connected_to_again_and_the_call_is_made(
    connected, serving, port, era
):
    async with connected(entry(f"http://127.0.0.1:{port}/mcp", era=era)) as connection:
        for _ in range(2):  # the second one knows nothing of the first one's sessions
            async with serving(asking_server(), port=port):
                assert said(await connection.call_tool("work", {"steps": 1})) == "done"
                assert connection.state == "ready"


async def test_a_server_that_has_gone_is_given_up_and_found_again_on_demand(connected, serving, port):
    url = f"http://127.0.0.1:{port}/mcp"
    async with connected(entry(url), backoff=ReconnectPolicy(attempts=2, base=0.0)) as connection:
        for _ in range(2):
            async with serving(asking_server(), port=port):
                assert said(await connection.call_tool("work", {"steps": 1})) == "done"
            with pytest.raises(ServerError, match="cannot be reached"):
                await connection.call_tool("work", {"steps": 1})
            assert connection.state == "failed"


async def test_many_calls_run_side_by_side(asking_connection):
    async with asking_connection() as connection, anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(connection.call_tool, "ended", {})
        tasks.start_soon(connection.call_tool, "work", {"steps": 1})


def events(*events):
    """An answer as a stream of events, which ends after them."""

    def answer(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n")
        for event in events:
            connection.sendall(event)

    return answer


async def test_a_stream_that_ends_without_an_answer_is_told(connected, web):
    scripted = Scripted(web, **{"tools/call": events(b": still thinking\n\n")})
    async with connected(entry(scripted.url)) as connection:
        with pytest.raises(ServerError, match=r"ended its response early\. It is not known") as caught:
            await connection.call_tool("write", {})
        assert caught.value.failure == "interrupted"
        assert connection.state == "ready"


@pytest.mark.hostile("MCP servers")
async def test_an_event_that_is_too_large_is_told(connected, web):
    scripted = Scripted(web, **{"tools/call": events(b"data: ", *[b"x" * (1 << 20)] * 40)})
    async with connected(entry(scripted.url)) as connection:
        with pytest.raises(ServerError, match="a response that is too large") as caught:
            await connection.call_tool("read", {})
        assert caught.value.failure == "too_large"
        assert connection.state == "ready"


async def test_an_event_may_come_in_pieces_and_be_followed_by_silence(connected, web):
    answered = threading.Event()

    def answer(asked, connection):
        if b"tools/call" not in asked.body:
            scripted.answer(asked, connection)
            return
        content = r'{"content": [{"type": "text", "text": "\ud83d\ude00 \ud83d\n"}]}'
        id_ = json.loads(asked.body)["id"]
        event = f'data: {{"jsonrpc": "2.0", "id": {id_}, "result": {content}}}\n\n'.encode()
        events(*[event[place : place + 1] for place in range(len(event))])(connection)
        answered.wait(20)

    scripted = Scripted(web)
    web.routes["/mcp"] = answer
    async with connected(entry(scripted.url)) as connection:
        assert said(await connection.call_tool("x", {})) == "😀 \ufffd\n"
        answered.set()


async def test_a_stream_that_breaks_off_again_and_again_is_still_listened_to(connected, web):
    breaks = 4  # the SDK gives up after two
    changed = anyio.Event()
    initialized = json.dumps({"jsonrpc": "2.0", "id": 0, "result": Scripted(web).results["initialize"]})

    def initialize(connection):
        head = (
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\n"
        )
        connection.sendall(f"{head}\r\n{initialized}".encode())

    def answer(asked, connection):
        if asked.method != "GET":
            scripted.answer(asked, connection)
            return
        listened.append(asked)
        said = '{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}'
        event = f"retry: 1\nid: 1\ndata: {said if len(listened) > breaks else ''}\n\n"
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        connection.sendall(f"{head}Connection: close\r\n\r\n{len(event):x}\r\n{event}\r\n".encode())

    def notice(change):
        if change == "tools":
            changed.set()

    listened = []
    scripted = Scripted(web, initialize=initialize)
    web.routes["/mcp"] = answer
    async with connected(entry(scripted.url), on_change=notice) as connection:
        await connection.ready(20)
        with anyio.fail_after(20):
            await changed.wait()


async def test_what_has_no_type_counts_as_no_answer(connected, web):
    def page(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html\r\n\r\n<p>Hi")

    scripted = Scripted(web, **{"tools/call": page})
    async with connected(entry(scripted.url)) as connection:
        with pytest.raises(ServerError, match="a web page"):
            await connection.call_tool("read", {})


async def test_a_signature_that_cannot_be_made_costs_its_request_only(connected, web):
    import httpx2

    class NoKey(httpx2.Auth):
        def auth_flow(self, request):
            if b"tools/call" in request.content:
                raise LoomError("The keyring is locked.", advice="Unlock it.")
            yield request

    scripted = Scripted(web)
    async with connected(entry(scripted.url), auth=lambda config: NoKey()) as connection:
        with pytest.raises(ServerError, match="The keyring is locked") as caught:
            await connection.call_tool("read", {})
        assert (caught.value.failure, caught.value.advice) == ("authentication", "Unlock it.")
        assert (await connection.list_tools()).tools == []
