from __future__ import annotations

import pytest
from mcp import Client

from loom_core.server.calls.context import ToolContext
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.resources import ResourceContent, ResourceEntry, ResourcePage


@pytest.fixture(params=["auto", "legacy"])
def connect(request):
    """Connects to a server in memory, in both eras."""
    return lambda server: Client(server.protocol, mode=request.param)


@pytest.fixture
def server():
    server = LoomServer("s", version="1", title="S")

    @server.resource(
        "loom://about",
        name="about",
        title="关于",
        description="About it.",
        mime_type="text/markdown",
        ttl_seconds=2.5,
    )
    async def about(ctx: ToolContext) -> ResourceContent:
        return ResourceContent(f"# 关于\n\n{ctx.protocol_version}", "text/markdown")

    @server.resource(
        "loom://logo", name="logo", title="Logo", description="A picture.", mime_type="image/png"
    )
    async def logo() -> ResourceContent:
        return ResourceContent(b"\x89PNG", "image/png")

    @server.resource(
        "loom://{kb}/{id}",
        name="document",
        title="Document",
        description="A document.",
        mime_type="text/plain",
    )
    async def document(ctx: ToolContext, kb: str, id: str) -> ResourceContent:  # noqa: A002
        return ResourceContent(f"{kb} {id} {ctx.protocol_version}")

    return server


def listed(server):
    @server.resource_list
    async def documents(cursor: str | None, ctx: ToolContext) -> ResourcePage:
        name = f"{cursor or 'first'} {ctx.protocol_version}"
        return ResourcePage([ResourceEntry(f"loom://docs/{name}", name)], None if cursor else "second")


async def test_single_resources_are_listed_and_templates_are_listed_as_such(server, connect):
    async with connect(server) as client:
        about, logo = (await client.list_resources()).resources
        (template,) = (await client.list_resource_templates()).resource_templates

    assert (about.uri, about.name, about.title, about.description, about.mime_type) == (
        "loom://about",
        "about",
        "关于",
        "About it.",
        "text/markdown",
    )
    assert (logo.uri, logo.mime_type) == ("loom://logo", "image/png")
    assert (template.uri_template, template.mime_type) == ("loom://{kb}/{id}", "text/plain")


async def test_single_resources_are_read_like_any(server, connect):
    async with connect(server) as client:
        (about,) = (await client.read_resource("loom://about")).contents
        (logo,) = (await client.read_resource("loom://logo")).contents
        (document,) = (await client.read_resource("loom://docs/1")).contents
        version = client.protocol_version

    assert about.text == f"# 关于\n\n{version}"
    assert (logo.blob, logo.mime_type) == ("iVBORw==", "image/png")
    assert document.text == f"docs 1 {version}"


async def test_single_resources_come_before_the_first_page_and_before_no_other(server, connect):
    listed(server)
    async with connect(server) as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        version = client.protocol_version

    assert [entry.name for entry in first.resources] == ["about", "logo", f"first {version}"]
    assert [entry.name for entry in second.resources] == [f"second {version}"]


async def test_a_client_is_told_how_long_it_may_keep_what_it_has_read(server):
    listed(server)
    async with Client(server.protocol) as client:
        assert (await client.read_resource("loom://about")).ttl_ms == 2500
        assert (await client.read_resource("loom://logo")).ttl_ms == 0
        assert (await client.list_resources()).ttl_ms == 0
        assert (await client.list_resource_templates()).ttl_ms == 300_000
        assert (await client.read_resource("loom://about")).cache_scope == "private"


def read(server, uri, function, **changes):
    options = {"name": "n", "title": "T", "description": "D."}
    server.resource(uri, **{**options, **changes})(function)


async def nothing() -> ResourceContent:
    raise AssertionError


def blocking() -> ResourceContent:
    raise AssertionError


@pytest.mark.parametrize(
    ("uri", "function", "changes", "reason"),
    [
        ("loom://{id}", nothing, {}, "are not the variables"),
        ("loom://about", nothing, {}, "'loom://about' is registered already"),
        ("loom://other", blocking, {}, "must be async"),
        ("loom://other", nothing, {"ttl_seconds": -1}, "cannot stay fresh for -1 s"),
        ("loom://{", nothing, {}, "Unclosed expression"),
    ],
)
def test_a_resource_that_breaks_a_rule_is_refused_at_registration(server, uri, function, changes, reason):
    with pytest.raises(ValueError, match=reason):
        read(server, uri, function, **changes)


async def test_what_is_not_listed_is_read_all_the_same_with_what_it_says_of_itself(server, connect):
    @server.resource(
        "ui://s/page", name="page", title="Page", description="A page.", mime_type="text/html", listed=False
    )
    async def page() -> ResourceContent:
        return ResourceContent("<p>关于</p>", "text/html", {"ui": {"prefersBorder": True}})

    @server.resource("ui://s/icon", name="icon", title="Icon", description="An icon.", listed=False)
    async def icon() -> ResourceContent:
        return ResourceContent(b"\x89PNG", "image/png", {"size": 4})

    async with connect(server) as client:
        listed = (await client.list_resources()).resources
        assert not [each for each in listed if str(each.uri).startswith("ui:")]
        assert not [
            each
            for each in (await client.list_resource_templates()).resource_templates
            if each.name in {"page", "icon"}
        ]
        (content,) = (await client.read_resource("ui://s/page")).contents
        assert (content.text, content.meta) == ("<p>关于</p>", {"ui": {"prefersBorder": True}})
        (content,) = (await client.read_resource("ui://s/icon")).contents
        assert content.meta == {"size": 4}
