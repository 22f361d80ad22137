"""A secret that is sent shows up nowhere: in no error, log, result or repr, whatever the server answers."""

from __future__ import annotations

import logging
import socket
import traceback
from urllib.parse import unquote

import pytest

from loom_core.errors import ConfigError, NetError
from loom_core.flow.config import EndpointConfig, FlowFile, NetConfig, SystemToolConfig
from loom_core.flow.expressions import ExpressionValues
from loom_core.flow.http import ConfigToolLoader, EndpointCaller, interpret_response

pytestmark = pytest.mark.hostile("secrets")

SECRET = "pl4nted/S3cret+value"
OTHER = "0ther-pl4nted-token"


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_TEST_TOKEN", SECRET)
    monkeypatch.setenv("LOOM_TEST_KEY", OTHER)


def with_secrets(endpoint, url: str, method: str = "GET", **written) -> EndpointConfig:
    return endpoint(
        url,
        method,
        headers={"Authorization": "Bearer env:LOOM_TEST_TOKEN", "X-Api-Key": "env:LOOM_TEST_KEY"},
        query={"api_key": "env:LOOM_TEST_KEY", "sign": "env:LOOM_TEST_TOKEN", "q": "{$inputs.q}"},
        **written,
    )


def is_clean(*texts: object) -> bool:
    shown = "\n".join(map(str, texts))
    return not any(secret in form for secret in (SECRET, OTHER) for form in (shown, unquote(shown)))


def all_of(error: BaseException) -> str:
    """Everything that a log with a traceback would show of an error, and what hangs on it."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        parts += [str(seen), repr(seen), repr(vars(seen)), repr(seen.args)]
        seen = seen.__cause__ or seen.__context__
    return "\n".join([*parts, *traceback.format_exception(error)])


async def test_the_server_gets_them(caller, api, endpoint) -> None:
    await caller.call(with_secrets(endpoint, api.on("/a", 200)), ExpressionValues(inputs={"q": "x"}))
    (asked,) = api.asked
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert asked.headers["x-api-key"] == OTHER
    assert OTHER in asked.target
    assert SECRET in unquote(asked.target)


@pytest.mark.parametrize("status", [200, 302, 400, 500])
async def test_an_answer_that_repeats_them_is_cleaned(status: int, caller, api, endpoint, caplog) -> None:
    def echo(asked, connection: socket.socket) -> None:
        content = f'{{"got": "{asked.headers["authorization"]}", "{OTHER}": ["{asked.target}"]}}'.encode()
        connection.sendall(
            f"HTTP/1.1 {status} Because\r\nContent-Length: {len(content)}\r\nX-Echo: {SECRET}\r\n"
            f"Content-Type: application/json\r\n\r\n".encode()
            + content
        )

    config = with_secrets(
        endpoint, api.on("/a", echo), failure="{$response.body#/got} {$response.header.x-echo}"
    )
    values = ExpressionValues(inputs={"q": "x"})
    with caplog.at_level(logging.DEBUG):
        answer = await caller.call(config, values)
        judgement = interpret_response(config, answer, values)
    assert "[secret]" in str(answer.body)
    assert "[secret]" in answer.headers["x-echo"]
    assert is_clean(answer, answer.body, answer.headers, answer.url, answer.key, judgement, caplog.text)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_error_that_repeats_them_is_cleaned(method: str, caller, api, endpoint, caplog) -> None:
    def nonsense(asked, connection: socket.socket) -> None:
        connection.sendall(f"HTTP/9 {asked.headers['authorization']} {SECRET} {OTHER}\r\n\r\n".encode())
        raise OSError("closed")

    def redirect(asked, connection: socket.socket) -> None:
        where = f"http://{OTHER}.internal/{SECRET}?{SECRET}"
        connection.sendall(f"HTTP/1.1 302 x\r\nContent-Length: 0\r\nLocation: {where}\r\n\r\n".encode())

    for path, answer in [("/nonsense", nonsense), ("/redirect", redirect)][: 2 if method == "GET" else 1]:
        config = with_secrets(endpoint, api.on(path, answer), method)
        with caplog.at_level(logging.DEBUG), pytest.raises(NetError) as failed:
            await caller.call(config, ExpressionValues(inputs={"q": "x"}))
        assert is_clean(all_of(failed.value), caplog.text)


async def test_a_host_that_is_left_alone_is_not_told_with_them(caller, api, endpoint) -> None:
    def nonsense(asked, connection: socket.socket) -> None:
        connection.sendall(f"HTTP/9 {asked.headers['authorization']}\r\n\r\n".encode())
        raise OSError("closed")

    config = with_secrets(endpoint, api.on("/a", nonsense), retries=9)
    for _ in range(2):
        with pytest.raises(NetError) as failed:
            await caller.call(config, ExpressionValues())
        assert is_clean(all_of(failed.value))
    assert failed.value.failure == "unavailable"


async def test_objects_do_not_show_them(caller, api, endpoint) -> None:
    config = with_secrets(endpoint, api.on("/a", 200))
    await caller.call(config, ExpressionValues())
    preview = caller.preview(config, ExpressionValues())
    assert is_clean(config, caller, caller.secrets, preview, preview.url, preview.headers, vars(caller))
    assert preview.headers["Authorization"] == "Bearer [secret]"
    assert "api_key=[secret]" in preview.url


async def test_a_model_does_not_read_them(callers, api) -> None:
    def echo(asked, connection: socket.socket) -> None:
        content = asked.headers["authorization"].encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)

    config = SystemToolConfig.model_validate(
        {
            "name": "look",
            "description": "Looks.",
            "endpoint": {
                "url": api.on("/a", echo),
                "method": "GET",
                "headers": {"Authorization": "Bearer env:LOOM_TEST_TOKEN"},
            },
        }
    )
    async with callers() as caller:
        (tool,) = ConfigToolLoader(FlowFile(system_tools=[config]), caller).load()
        output = await tool.call({})
    assert output.text == "Bearer [secret]"
    assert is_clean(output, tool, tool.description, dict(tool.args_schema))


async def test_they_do_not_follow_a_redirect_to_another_origin(caller, api, endpoint, local_servers) -> None:
    other = local_servers()
    other.answers("/b", b"{}")
    url = api.on("/a", (302, None, {"Location": other.url("/b")}))
    await caller.call(with_secrets(endpoint, url), ExpressionValues())
    (asked,) = other.asked
    assert is_clean(asked)


async def test_they_are_not_sent_over_http_to_the_open_internet(endpoint) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise AssertionError("no request is expected")

    file = FlowFile(net=NetConfig(allow=["10.0.0.0/8"]))
    async with EndpointCaller(file, resolve=resolve) as caller:
        for url in ("http://api.example/a", "http://8.8.8.8/a"):
            with pytest.raises(ConfigError, match="A secret is not sent to") as refused:
                await caller.call(with_secrets(endpoint, url), ExpressionValues())
            assert is_clean(all_of(refused.value))
