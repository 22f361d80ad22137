from __future__ import annotations

import anyio
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode, get_tracer

from loom_core.agent import Agent, AgentTool
from loom_core.errors import LLMError
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.observability.spans import INVOKE_AGENT
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal


def named(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def within(inner: ReadableSpan, outer: ReadableSpan) -> bool:
    return inner.parent is not None and inner.parent.span_id == outer.context.span_id


async def test_a_run_is_a_span_around_what_the_model_and_the_tools_do(spans: list[ReadableSpan]):
    call = ToolCallPart("c1", "researcher", {"goal": "找到港长"})
    researcher = Agent(MockProvider(["李明"]), name="researcher", description="Looks things up.")
    chief = Agent(
        MockProvider([MockAnswer(calls=(call,)), "李明"]),
        tools=[AgentTool(researcher)],
        permissions="allow",
        name="chief",
    )
    result = await chief.run("港长是谁？")
    assert result.or_raise().output == "李明"
    run, child = named(spans, "invoke_agent chief"), named(spans, "invoke_agent researcher")
    executed = named(spans, "execute_tool researcher")
    assert within(executed, run)
    assert within(child, executed)
    chats = [span for span in spans if span.name == "chat mock"]
    assert [within(chat, run) for chat in chats] == [True, False, True]
    assert within(chats[1], child)
    attributes = dict(run.attributes or {})
    assert set(attributes) <= set(INVOKE_AGENT.attributes)
    assert attributes["loom.run.id"] == result.run_id
    assert attributes["loom.run.status"] == "completed"
    assert attributes["loom.run.iterations"] == 2
    assert (child.attributes or {})["loom.run.depth"] == 1


async def test_a_run_that_fails_says_so(spans: list[ReadableSpan]):
    await Agent(MockProvider([LLMError("no 港长", failure="quota")])).run("港长是谁？")
    run = named(spans, "invoke_agent default")
    assert run.status.status_code is StatusCode.ERROR
    assert (run.attributes or {})["loom.run.status"] == "failed"
    assert "\\u6e2f" not in run.to_json()


async def test_a_run_that_is_taken_up_later_goes_on_in_the_trace_it_was_asked_for_in(
    spans: list[ReadableSpan],
):
    journal = Journal()
    agent = Agent(MockProvider(["李明"]), journal=journal)
    with get_tracer("test").start_as_current_span("the request"):
        run = await journal.create(agent.request("港长是谁？"))
    async with RunHost(journal, {"default": agent}) as host:
        await host.adopt(run.id)
        with anyio.fail_after(10):
            while (run := await journal.get(run.id)).status != "completed":
                await journal.wait_until_idle(run.id, after=run.last_seq, seconds=1)
    assert within(named(spans, "invoke_agent default"), named(spans, "the request"))


async def test_a_run_that_another_trace_takes_up_is_linked_to_the_first(spans: list[ReadableSpan]):
    journal = Journal()
    agent = Agent(MockProvider(["李明"]), journal=journal)
    with get_tracer("test").start_as_current_span("the request"):
        run = await journal.create(agent.request("港长是谁？"))
    with get_tracer("test").start_as_current_span("the decision"):
        await agent.resume(run.id)
    driven, request = named(spans, "invoke_agent default"), named(spans, "the request")
    assert within(driven, named(spans, "the decision"))
    assert [link.context.span_id for link in driven.links] == [request.context.span_id]


async def test_without_a_trace_nothing_is_written_down_for_one():
    journal = Journal()
    run = await journal.create(Agent(MockProvider([]), journal=journal).request("港长是谁？"))
    assert run.request.metadata == {}
