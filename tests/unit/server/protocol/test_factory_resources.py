"""Resources of a server in both eras: listed page by page, read by their address, refused with the reason."""

from __future__ import annotations

import pytest
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS

from loom_core.server.protocol.factory import LoomServer


@pytest.mark.parametrize(
    ("uri", "content"),
    [
        ("loom://产品文档/一", "你好，世界"),
        ("loom://%E4%BA%A7%E5%93%81%E6%96%87%E6%A1%A3/%E4%B8%80", "你好，世界"),
    ],
)
async def test_a_resource_is_read_by_its_uri_in_any_script(sample, connect, uri, content):
    async with connect(sample) as client:
        (found,) = (await client.read_resource(uri)).contents

    assert (found.uri, found.text, found.mime_type) == (uri, content, "text/markdown")


async def test_a_binary_resource_is_read_as_bytes(sample, connect):
    async with connect(sample) as client:
        (found,) = (await client.read_resource("loom://docs/raw")).contents

    assert (found.blob, found.mime_type) == ("AAE=", "application/octet-stream")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("loom://docs/none", "There is no document 'none' in 'docs'."),
        ("loom://docs", "There is no resource 'loom://docs'."),
        ("file:///etc/passwd", "There is no resource 'file:///etc/passwd'."),
    ],
)
async def test_a_resource_that_does_not_exist_is_an_invalid_parameter(sample, connect, uri, message):
    async with connect(sample) as client:
        with pytest.raises(MCPError) as raised:
            await client.read_resource(uri)

    assert (raised.value.error.code, raised.value.error.message) == (INVALID_PARAMS, message)
    assert raised.value.error.data == {"uri": uri}


async def test_a_crash_while_reading_does_not_show_its_details(sample, connect):
    async with connect(sample) as client:
        with pytest.raises(MCPError, match="Internal error in resource 'loom://docs/crash'") as raised:
            await client.read_resource("loom://docs/crash")

    assert raised.value.error.code == INTERNAL_ERROR


async def test_resources_are_listed_page_by_page(sample, connect):
    async with connect(sample) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)

    assert [entry.uri for entry in first.resources] == ["loom://docs/a%2Fb", "loom://docs/raw"]
    assert [(entry.name, entry.title) for entry in second.resources] == [("一", "产品文档")]
    assert second.next_cursor is None


async def test_every_listed_resource_can_be_read(sample, connect):
    async with connect(sample) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        contents = [
            (await client.read_resource(e.uri)).contents for e in [*first.resources, *second.resources]
        ]

    assert [getattr(content, "text", None) for (content,) in contents] == ["hello", None, "你好，世界"]


async def test_a_strange_cursor_is_refused_with_advice(sample, connect):
    async with connect(sample) as client:
        with pytest.raises(MCPError, match="Start without one") as raised:
            await client.list_resources(cursor="elsewhere")

    assert raised.value.error.code == INVALID_PARAMS


async def test_templates_are_listed(sample, connect):
    async with connect(sample) as client:
        (template,) = (await client.list_resource_templates()).resource_templates

    assert (template.uri_template, template.name, template.title) == (
        "loom://{kb}/{id}",
        "document",
        "Document",
    )


async def test_templates_without_a_list_give_an_empty_list(connect):
    server = LoomServer("bare", version="1", title="Bare")

    @server.resource("loom://{id}", name="document", title="Document", description="A document.")
    async def document(id):  # noqa: A002
        raise AssertionError

    async with connect(server) as client:
        assert (await client.list_resources()).resources == []


def test_a_resource_function_takes_the_variables_of_its_template():
    async def read(kb: str):
        raise AssertionError

    server = LoomServer("s", version="1", title="S")
    with pytest.raises(ValueError, match="are not the variables"):
        server.resource("loom://{kb}/{id}", name="n", title="T", description="D.")(read)
