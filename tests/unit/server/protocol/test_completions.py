from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from mcp import Client, MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, PromptReference, ResourceTemplateReference

from loom_core.server.calls.context import ToolContext
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.prompts import PromptMessage
from loom_core.server.protocol.resources import ResourceContent

DOCUMENT = ResourceTemplateReference(uri="loom://{source}/{id}")
PROMPT = PromptReference(name="plan")
IDS = {"docs": [f"doc{number:03}" for number in range(150)], "产品文档": ["灯塔", "灯泡", "\udce9"]}


@pytest.fixture(params=["auto", "legacy"])
def connect(request):
    """Connects to a server in memory, in both eras."""
    return lambda server: Client(server.protocol, mode=request.param)


def bare():
    server = LoomServer("s", version="1", title="S")

    @server.prompt(title="Plan")
    async def plan(goal: str, source: str = "") -> Sequence[PromptMessage]:
        """Makes a plan."""
        raise AssertionError

    @server.resource(DOCUMENT.uri, name="document", title="Document", description="A document.")
    async def document(source: str, id: str) -> ResourceContent:  # noqa: A002 - the template's variable
        raise AssertionError

    @server.resource("loom://about", name="about", title="About", description="About it.")
    async def about() -> ResourceContent:
        raise AssertionError

    return server


@pytest.fixture
def server():
    server = bare()

    @server.completion("source", resource=DOCUMENT.uri)
    @server.completion("source", prompt="plan")
    async def sources(typed: str, others: Mapping[str, str]) -> list[str]:
        if typed == "crash":
            raise RuntimeError("a secret detail")
        return [name for name in IDS if name.startswith(typed)]

    @server.completion("id", resource=DOCUMENT.uri)
    async def ids(typed: str, others: Mapping[str, str], ctx: ToolContext) -> list[str]:
        assert ctx.protocol_version
        return [name for name in IDS[others["source"]] if name.startswith(typed)]

    return server


async def completed(client, ref, argument, typed, **others):
    result = await client.complete(ref, {"name": argument, "value": typed}, context_arguments=others or None)
    return result.completion.values, result.completion.has_more


async def test_arguments_of_prompts_and_templates_are_completed(server, connect):
    async with connect(server) as client:
        assert client.server_capabilities.completions is not None
        assert await completed(client, PROMPT, "source", "") == (["docs", "产品文档"], False)
        assert await completed(client, DOCUMENT, "source", "产") == (["产品文档"], False)


async def test_what_is_filled_in_already_narrows_what_fits(server, connect):
    async with connect(server) as client:
        assert await completed(client, DOCUMENT, "id", "灯", source="产品文档") == (["灯塔", "灯泡"], False)


async def test_no_more_than_a_hundred_values_are_given_and_it_is_said_that_there_are_more(server, connect):
    async with connect(server) as client:
        values, more = await completed(client, DOCUMENT, "id", "doc", source="docs")

    assert (values, more) == (IDS["docs"][:100], True)


@pytest.mark.hostile("MCP requests")
async def test_a_value_that_is_not_valid_unicode_does_not_break_the_connection(server, connect):
    async with connect(server) as client:
        values, _ = await completed(client, DOCUMENT, "id", "", source="产品文档")

    assert values == ["灯塔", "灯泡", "?"]


async def test_an_argument_that_no_one_knows_the_values_of_has_none(server, connect):
    async with connect(server) as client:
        assert await completed(client, PROMPT, "goal", "a") == ([], False)


@pytest.mark.parametrize(
    ("ref", "argument", "message"),
    [
        (PromptReference(name="plam"), "goal", "There is no prompt 'plam', did you mean `plan`."),
        (PROMPT, "sorce", "'plan' has no argument 'sorce', did you mean `source`."),
        (DOCUMENT, "name", "'loom://{source}/{id}' has no argument 'name'."),
        (
            ResourceTemplateReference(uri="loom://about"),
            "id",
            "There is no resource template 'loom://about'.",
        ),
        (ResourceTemplateReference(uri="x://{y}"), "y", "There is no resource template 'x://{y}'."),
    ],
)
async def test_what_does_not_exist_is_refused(server, connect, ref, argument, message):
    async with connect(server) as client:
        with pytest.raises(MCPError) as refused:
            await completed(client, ref, argument, "")

    assert (refused.value.error.code, refused.value.error.message) == (INVALID_PARAMS, message)


async def test_a_crash_while_completing_does_not_show_its_details(server, connect):
    async with connect(server) as client:
        with pytest.raises(
            MCPError, match="Internal error in the completion of 'source' of 'plan'"
        ) as refused:
            await completed(client, PROMPT, "source", "crash")

    assert refused.value.error.code == INTERNAL_ERROR


async def test_a_server_that_completes_nothing_does_not_claim_to(connect):
    async with connect(bare()) as client:
        assert client.server_capabilities.completions is None


async def values(typed: str, others: Mapping[str, str]) -> list[str]:
    raise AssertionError


def blocking(typed: str, others: Mapping[str, str]) -> list[str]:
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "argument", "of", "reason"),
    [
        (values, "source", {}, "name either a prompt or a resource template"),
        (values, "source", {"prompt": "plan", "resource": DOCUMENT.uri}, "name either"),
        (values, "source", {"prompt": "nothing"}, "There is no prompt 'nothing'. Register it first."),
        (values, "nothing", {"prompt": "plan"}, "'plan' has no argument 'nothing'"),
        (values, "id", {"resource": "loom://about"}, "There is no resource template"),
        (blocking, "source", {"prompt": "plan"}, "must be async"),
    ],
)
def test_a_completion_that_breaks_a_rule_is_refused_at_registration(function, argument, of, reason):
    with pytest.raises(ValueError, match=reason):
        bare().completion(argument, **of)(function)


def test_an_argument_is_completed_once():
    server = bare()
    server.completion("goal", prompt="plan")(values)
    with pytest.raises(ValueError, match="completion of 'goal' of 'plan' is registered already"):
        server.completion("goal", prompt="plan")(values)
