"""Asking the user, through the SDK's client in both eras."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import ClientCapabilities, ElicitResult, ErrorData, InputRequiredResult, ListRootsResult
from pydantic import BaseModel, Field

from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.elicitation import ConsentError, ask, ask_form, can_ask, consent
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.prompts import PromptMessage
from loom_core.server.protocol.results import ToolReply, tool_result


class Color(BaseModel):
    color: Annotated[str, Field(description="颜色")]
    times: int = 1


class Told(BaseModel):
    told: list[str]


class Painter:
    """A server that asks; `painted` is what it has done."""

    def __init__(self, *, deadline=20.0, state_keys=None, name="painter"):
        self.painted = []
        self.deadline = deadline
        self.server = LoomServer(name, version="1", title="Painter", state_keys=state_keys)
        for function in (self.paint, self.paint_twice, self.repaint, self.sell):
            self.server.tool(
                title="Paint", read_only=False, destructive=False, idempotent=True, open_world=False
            )(function)
        self.server.prompt(title="Advise")(self.advise)

    async def paint(self, what: str, ctx: ToolContext) -> ToolReply[Told]:
        """Asks for a colour and paints."""
        answer = await ask(ctx, f"Which colour for {what}? 什么颜色？", Color, deadline=self.deadline)
        if answer.value:
            self.painted.append((what, answer.value.color))
        return tool_result(answer.outcome, Told(told=[answer.outcome]))

    async def paint_twice(self, ctx: ToolContext) -> ToolReply[Told]:
        """Asks for two colours, one after the other."""
        colors = []
        for name in ("first", "second"):
            answer = await ask(ctx, f"The {name} colour?", Color, name=name, deadline=self.deadline)
            colors.append(answer.value.color if answer.value else answer.outcome)
        return tool_result(" and ".join(colors), Told(told=colors))

    async def repaint(self, ctx: ToolContext) -> ToolReply[Told]:
        """Asks the same twice, which no function should."""
        for _ in range(2):
            await ask(ctx, "Which colour?", Color, deadline=self.deadline)
        raise AssertionError

    async def sell(self, ctx: ToolContext, confirm: bool = False) -> ToolReply[Told]:
        """Sells everything, if the user agrees."""
        await consent(
            ctx,
            "Sell all of it?",
            confirmed=confirm,
            otherwise="call `sell` with confirm: true",
            deadline=self.deadline,
        )
        self.painted.append("sold")
        return tool_result("sold", Told(told=["sold"]))

    async def advise(self, ctx: ToolContext) -> list[PromptMessage]:
        """Advises on a colour."""
        answer = await ask(ctx, "Which colour?", Color)
        return [PromptMessage(f"Advise on {answer.value.color if answer.value else 'any colour'}.")]


@pytest.fixture
def painter():
    return Painter()


@pytest.fixture(params=["auto", "legacy"])
def connect(request):
    """Connects a client of either era: `connect(painter, answer)`."""

    def connect(painter, answer=None, **options):
        return Client(painter.server.protocol, mode=request.param, elicitation_callback=answer, **options)

    return connect


def answering(*results):
    """A client's user, who gives these answers in turn, and `asked`: what they were asked."""
    waiting, asked = list(results), []

    async def answer(_context, params):
        asked.append(params)
        return waiting.pop(0)

    return answer, asked


def accepted(**content):
    return ElicitResult(action="accept", content=content)


def told(result):
    return result.content[0].text


async def test_an_answer_reaches_the_function_in_both_eras(connect, painter):
    answer, asked = answering(accepted(color="天蓝", times=2))
    async with connect(painter, answer) as client:
        result = await client.call_tool("paint", {"what": "船"})
    assert told(result) == "accepted"
    assert painter.painted == [("船", "天蓝")]
    assert asked[0].message == "Which colour for 船? 什么颜色？"
    assert asked[0].requested_schema == {
        "type": "object",
        "properties": {
            "color": {"description": "颜色", "title": "Color", "type": "string"},
            "times": {"default": 1, "title": "Times", "type": "integer"},
        },
        "required": ["color"],
    }


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (ElicitResult(action="decline"), "declined"),
        (ElicitResult(action="cancel"), "cancelled"),
    ],
)
async def test_to_refuse_and_to_close_the_question_are_told_apart(connect, painter, result, outcome):
    answer, _ = answering(result)
    async with connect(painter, answer) as client:
        assert told(await client.call_tool("paint", {"what": "a boat"})) == outcome
    assert painter.painted == []


async def test_each_question_is_asked_once_however_often_the_function_runs(connect, painter):
    answer, asked = answering(accepted(color="red"), accepted(color="蓝"))
    async with connect(painter, answer) as client:
        result = await client.call_tool("paint_twice", {})
    assert result.structured_content == {"told": ["red", "蓝"]}
    assert [params.message for params in asked] == ["The first colour?", "The second colour?"]


async def test_a_client_that_cannot_ask_is_told_how_to_call_again(connect, painter):
    async with connect(painter) as client:
        assert told(await client.call_tool("paint", {"what": "a boat"})) == "unavailable"
        refused = await client.call_tool("sell", {})
        assert refused.is_error
        assert told(refused) == (
            "Nothing was done yet, for the user has to agree first: Sell all of it? "
            "Ask them; if they agree, call `sell` with confirm: true."
        )
        assert painter.painted == []
        assert told(await client.call_tool("sell", {"confirm": True})) == "sold"


@pytest.mark.parametrize(
    ("elicitation", "expected"), [({}, True), ({"form": {}}, True), ({"url": {}}, False), (None, False)]
)
async def test_only_a_client_that_can_show_a_form_can_ask(painter, elicitation, expected):
    capabilities = ClientCapabilities.model_validate({"elicitation": elicitation})

    async def look(ctx: ToolContext) -> ToolReply[Told]:
        """Looks whether it could ask a client with these capabilities."""
        return tool_result(str(can_ask(replace(ctx, capabilities=capabilities))), Told(told=[]))

    painter.server.tool(title="Look", read_only=True, destructive=False, idempotent=True, open_world=False)(
        look
    )
    async with Client(painter.server.protocol) as client:
        assert told(await client.call_tool("look", {})) == str(expected)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (accepted(), "sold"),
        (ElicitResult(action="accept"), "sold"),
        (ElicitResult(action="decline"), "The user said no; nothing was done. Try again only"),
        (ElicitResult(action="cancel"), "The user closed the question; nothing was done. Ask them"),
    ],
)
async def test_only_who_accepts_has_agreed(connect, painter, result, expected):
    answer, asked = answering(result)
    async with connect(painter, answer) as client:
        answered = await client.call_tool("sell", {})
    assert told(answered).startswith(expected)
    assert painter.painted == (["sold"] if expected == "sold" else [])
    assert asked[0].requested_schema == {"type": "object", "properties": {}}


async def test_what_a_model_says_of_the_user_counts_only_where_they_cannot_be_asked(connect, painter):
    answer, asked = answering(ElicitResult(action="decline"), accepted())
    async with connect(painter, answer) as client:
        refused = await client.call_tool("sell", {"confirm": True})
        assert told(refused).startswith("The user said no; nothing was done.")
        assert painter.painted == []
        assert told(await client.call_tool("sell", {"confirm": True})) == "sold"
    assert [params.message for params in asked] == ["Sell all of it?"] * 2


async def test_an_answer_that_does_not_fit_the_question_is_an_error_that_names_the_field(connect, painter):
    answer, _ = answering(accepted(color="red", times="often"))
    async with connect(painter, answer) as client:
        result = await client.call_tool("paint", {"what": "a boat"})
    assert result.is_error
    assert "does not fit the question: times" in told(result)
    assert painter.painted == []


async def test_a_user_who_does_not_answer_in_time_has_not_answered():
    painter = Painter(deadline=0.05)
    stopped = anyio.Event()

    async def answer(_context, _params):
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    with anyio.fail_after(10):
        async with Client(painter.server.protocol, mode="legacy", elicitation_callback=answer) as client:
            assert told(await client.call_tool("paint", {"what": "a boat"})) == "timed_out"
            refused = told(await client.call_tool("sell", {}))
            await stopped.wait()
    assert refused.startswith("The user did not answer within 0.05 s; nothing was done. Call again when")


async def test_an_answer_that_comes_too_late_in_a_round_trip_does_not_count():
    painter = Painter(deadline=0.0)
    answer, asked = answering(accepted(color="red"))
    async with Client(painter.server.protocol, elicitation_callback=answer) as client:
        assert told(await client.call_tool("paint", {"what": "a boat"})) == "timed_out"
    assert len(asked) == 1
    assert painter.painted == []


async def test_a_client_that_fails_to_ask_counts_as_one_that_cannot(painter):
    answer, _ = answering(ErrorData(code=-32603, message="no window"))
    async with Client(painter.server.protocol, mode="legacy", elicitation_callback=answer) as client:
        assert told(await client.call_tool("paint", {"what": "a boat"})) == "unavailable"


async def test_a_call_that_is_given_up_withdraws_its_question(painter):
    asked, withdrawn = anyio.Event(), anyio.Event()

    async def answer(_context, _params):
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()

    with anyio.fail_after(10):
        async with Client(painter.server.protocol, mode="legacy", elicitation_callback=answer) as client:
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call_tool, "paint", {"what": "a boat"})
                await asked.wait()
                calls.cancel_scope.cancel()
            await withdrawn.wait()
    assert painter.painted == []


async def test_a_prompt_may_ask_too(connect, painter):
    answer, _ = answering(accepted(color="绿"))
    async with connect(painter, answer) as client:
        prompt = await client.get_prompt("advise")
    assert prompt.messages[0].content.text == "Advise on 绿."


async def test_the_same_question_twice_in_one_call_is_a_mistake_that_is_found(painter):
    answer, _ = answering(accepted(color="red"))
    async with Client(painter.server.protocol, elicitation_callback=answer) as client:
        result = await client.call_tool("repaint", {})
    assert result.is_error
    assert "Internal error in tool `repaint`" in told(result)


async def first_round(client, tool, arguments):
    result = await client.session.call_tool(tool, arguments, allow_input_required=True)
    assert isinstance(result, InputRequiredResult)
    return result


async def test_a_state_is_good_for_the_call_that_it_was_given_for_only(painter):
    answer, _ = answering()
    responses = {"answer": accepted(color="red")}
    async with Client(painter.server.protocol, elicitation_callback=answer) as client:
        state = (await first_round(client, "paint", {"what": "a boat"})).request_state
        other = (await first_round(client, "paint_twice", {})).request_state
        for wrong in (state[:-2] + ("AA" if state[-2:] != "AA" else "BB"), "nonsense", other):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await client.session.call_tool(
                    "paint", {"what": "a boat"}, input_responses=responses, request_state=wrong
                )
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await client.session.call_tool(
                "paint", {"what": "a house"}, input_responses=responses, request_state=state
            )
        assert painter.painted == []
        await client.session.call_tool(
            "paint", {"what": "a boat"}, input_responses=responses, request_state=state
        )
    assert painter.painted == [("a boat", "red")]


async def test_a_response_of_the_wrong_kind_is_refused(painter):
    answer, _ = answering()
    async with Client(painter.server.protocol, elicitation_callback=answer) as client:
        state = (await first_round(client, "paint", {"what": "a boat"})).request_state
        with pytest.raises(MCPError, match=r"inputResponses\.answer is not an answer to elicitation/create"):
            await client.session.call_tool(
                "paint",
                {"what": "a boat"},
                input_responses={"answer": ListRootsResult(roots=[])},
                request_state=state,
            )


async def test_a_question_that_is_left_out_of_the_responses_is_asked_again(painter):
    answer, _ = answering()
    async with Client(painter.server.protocol, elicitation_callback=answer) as client:
        first = await first_round(client, "paint", {"what": "a boat"})
        again = await client.session.call_tool(
            "paint",
            {"what": "a boat"},
            input_responses={"other": accepted(color="red")},
            request_state=first.request_state,
            allow_input_required=True,
        )
    assert isinstance(again, InputRequiredResult)
    assert list(again.input_requests) == ["answer"]


@pytest.mark.parametrize(
    ("keys", "name", "understood"),
    [
        (("a" * 32, "a" * 32), "painter", True),
        (("a" * 32, "b" * 32), "painter", False),
        (("a" * 32, "a" * 32), "another", False),
    ],
)
async def test_another_worker_goes_on_with_a_call_if_it_has_the_keys(keys, name, understood):
    first = Painter(state_keys=lambda: [keys[0]])
    second = Painter(state_keys=lambda: [keys[1]], name=name)
    answer, _ = answering()
    async with Client(first.server.protocol, elicitation_callback=answer) as client:
        asked = await first_round(client, "paint", {"what": "a boat"})
    async with Client(second.server.protocol, elicitation_callback=answer) as client:
        refused = pytest.raises(MCPError, match="Invalid or expired requestState")
        with nullcontext() if understood else refused:
            await client.session.call_tool(
                "paint",
                {"what": "a boat"},
                input_responses={"answer": accepted(color="red")},
                request_state=asked.request_state,
            )
    assert second.painted == ([("a boat", "red")] if understood else [])


def test_what_came_of_a_question_is_in_the_error():
    error = ConsentError("No.", advice="Ask.", outcome="declined")
    assert (str(error), error.outcome) == ("No. Ask.", "declined")


async def test_a_form_of_another_program_is_asked_with_what_the_protocol_allows_of_it(connect, painter):
    schema = {"properties": {"名字": {"type": "string"}}, "required": ["名字"], "$comment": "not for clients"}
    given = []

    @painter.server.tool(
        title="Ask", read_only=True, destructive=False, idempotent=True, open_world=False, name="asks"
    )
    async def asks(ctx: ToolContext) -> ToolReply[Told]:
        """Asks by a schema."""
        given.append(await ask_form(ctx, "谁？", schema, name="who"))
        return tool_result(given[-1].outcome, Told(told=[]))

    answer, asked = answering(accepted(名字="李明"))
    async with connect(painter, answer) as client:
        assert told(await client.call_tool("asks", {})) == "accepted"
    assert given[-1].content == {"名字": "李明"}
    assert asked[0].requested_schema == {
        "type": "object",
        "properties": {"名字": {"type": "string"}},
        "required": ["名字"],
    }


async def test_what_a_function_keeps_it_finds_again_when_it_is_run_again(connect, painter):
    begun = []

    @painter.server.tool(
        title="Begin", read_only=False, destructive=False, idempotent=False, open_world=False, name="begins"
    )
    async def begins(ctx: ToolContext) -> ToolReply[Told]:
        """Begins something once, and asks about it."""
        kept = ctx.client_input.kept
        if "begun" not in kept:
            begun.append("东西")
            kept["begun"] = begun[-1]
        answer = await ask_form(ctx, "Go on?", {}, name="go-on")
        return tool_result(f"{kept['begun']} {answer.outcome}", Told(told=[]))

    answer, _ = answering(accepted())
    async with connect(painter, answer) as client:
        assert told(await client.call_tool("begins", {})) == "东西 accepted"
    assert begun == ["东西"]
