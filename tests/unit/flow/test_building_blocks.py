"""The parts of the flow server as programs use them: by the calls of the first design, without a file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.flow import (
    AgentConfigSchema,
    ConfigToolLoader,
    FlowConfig,
    FlowExecutor,
    FlowFile,
    FlowRouter,
    KnowledgeBaseExecutor,
    SystemExecutor,
    SystemToolConfig,
    WorkflowOrchestrator,
    build_system_prompt,
)
from loom_core.flow.config import NetConfig, check_flow_file
from loom_core.flow.http import EndpointCaller
from loom_core.testing import MockLLM
from tests.fixtures.local_server import LocalServer
from tests.unit.flow.conftest import LEAVE, ORDER, Api
from tests.unit.flow.http.conftest import StubApi, at_once

_CONTEXT = {"tenantId": "acme", "chatbotId": "bot-1"}
_PHONE = SystemToolConfig.model_validate(
    {
        "name": "save_phone",
        "description": "Keep a telephone number.",
        "parameters": {"type": "object", "properties": {"phone": {"type": "string"}}, "required": ["phone"]},
        "endpoint": {"url": "/phones", "body": {"phone": "{$inputs.phone}", "for": "{$context.tenantId}"}},
    }
)


@pytest.fixture
def api(local_servers: Any) -> StubApi:
    return StubApi(local_servers(keeps=True))


def _caller() -> EndpointCaller:
    return EndpointCaller(FlowFile(net=NetConfig(allow=["127.0.0.1"])), retry=at_once())


def _body(server: LocalServer) -> Any:
    return json.loads(server.asked[-1].body)


def test_a_router_of_flows_takes_the_first_that_fits_unless_it_is_told_otherwise():
    off = FlowConfig(flow_id="off", trigger_patterns=["我要请假"], enabled=False)
    leave = FlowConfig(flow_id="leave", trigger_patterns=["我要请假", "申请.*假"])
    sick = FlowConfig(flow_id="sick", trigger_patterns=["我要请假"])
    flows = [off, leave, sick]
    assert FlowRouter(flows).match_by_pattern("我要请假") is leave
    assert FlowRouter(flows, ambiguous="ask").match_by_pattern("我要请假") is None
    assert FlowRouter(flows).match_by_pattern("今天天气怎么样") is None


async def test_an_executor_of_an_address_posts_any_flow_there_with_the_context(api: StubApi):
    address = api.on("/flows", {"单号": "L-7"})
    async with _caller() as caller:
        executor = FlowExecutor(address, caller, _CONTEXT)
        run = await executor.execute("leave_request", "我要请三天假", {"days": 3})
        await executor.aclose()
    assert (run.status, json.loads(run.output)) == ("completed", {"单号": "L-7"})
    assert _body(api.server) == {
        "flow_id": "leave_request",
        "message": "我要请三天假",
        "parameters": {"days": 3},
        "context": _CONTEXT,
    }


async def test_an_executor_of_an_address_says_why_a_flow_failed(api: StubApi):
    async with _caller() as caller:
        executor = FlowExecutor(api.on("/flows", (409, {"message": "没有余额"})), caller)
        run = await executor.execute("leave_request", "我要请三天假", {})
        await executor.aclose()
    assert run.status == "failed"
    assert "没有余额" in run.problem
    with pytest.raises(ConfigError, match="flow_url"):
        FlowExecutor("ftp://flows", caller)


async def test_a_system_executor_calls_a_tool_and_tells_of_wrong_arguments(api: StubApi):
    endpoint = _PHONE.endpoint.model_copy(update={"url": api.on("/phones", {"saved": True})})
    tool = _PHONE.model_copy(update={"endpoint": endpoint})
    async with _caller() as caller:
        system = SystemExecutor(caller, _CONTEXT)
        output = await system.execute(tool, {"phone": "13800138000"})
        wrong = await system.execute(tool, {"telephone": "1"})
    assert output.structured == {"saved": True}
    assert _body(api.server) == {"phone": "13800138000", "for": "acme"}
    assert wrong.is_error
    assert "phone" in wrong.text


def test_a_tool_loader_takes_a_configuration_of_tools_alone():
    config = AgentConfigSchema(basic_settings=FlowFile().basic_settings, tools=[_PHONE])
    (tool,) = ConfigToolLoader(config).load()
    assert (tool.name, tool.description) == ("save_phone", "Keep a telephone number.")


async def test_knowledge_is_asked_for_once_and_never_fails_a_message(api: StubApi):
    found = {"items": [{"id": "r-7", "content": "每年有15天年假。"}]}
    address = api.on("/knowledge", found)
    async with _caller() as caller:
        knowledge = KnowledgeBaseExecutor(address, caller, _CONTEXT)
        first = await knowledge.pre_query("年假有几天？")
        again = await knowledge.pre_query("年假有几天？")
        broken = await KnowledgeBaseExecutor(api.on("/broken", 500), caller).pre_query("年假有几天？")
        none = await KnowledgeBaseExecutor(None, caller).pre_query("年假有几天？")
    assert [item.content for item in first.items] == ["每年有15天年假。"]
    assert again.items == first.items
    asked = [each for each in api.server.asked if each.target.startswith("/knowledge")]
    assert len(asked) == 1
    assert "tenantId=acme" in asked[0].target
    assert "chatbotId=bot-1" in asked[0].target
    assert (broken.outcome, broken.items) == ("failed", ())
    assert none.outcome == "not_needed"


async def test_an_orchestrator_takes_a_configuration_context_and_client_as_the_design_has_it():
    config = FlowFile.model_validate(
        {
            "flow_url": "https://hr.example",
            "flows": [LEAVE, ORDER],
            "context": {"tenantId": "t0", "unit": "hr"},
        }
    )
    caller = Api(config)
    async with caller, WorkflowOrchestrator(config, _CONTEXT, caller) as assistant:
        reply = await assistant.query("订单42到哪了")
        await assistant.reload(check_flow_file(config))
        await assistant.query("订单43到哪了", session_id=reply.session_id)
    assert str(reply) == reply.text == "订单42在路上"
    assert [context for _, _, context in caller.asked] == [{**_CONTEXT, "unit": "hr"}] * 2


def test_a_configuration_of_a_program_is_checked_like_a_file():
    wrong = FlowFile.model_validate({"flows": [{**ORDER, "steps": [{"stepId": "a", "tool": "nothing"}]}]})
    with pytest.raises(ConfigError, match=r"FlowFile:\d+:\d+: .*nothing"):
        WorkflowOrchestrator(wrong)


async def test_the_system_prompt_is_the_one_that_the_model_reads_and_holds_no_knowledge():
    config = FlowFile.model_validate(
        {
            "basic_settings": {"name": "小青", "instructions": "回答简短。"},
            "retrieve_knowledge_url": "https://kb.example/retrieve",
            "flow_url": "https://flow.example",
            "flows": [LEAVE],
            "skills": [
                {"condition": "Customer wants a demo", "action": "Save the customer", "tools": ["save_phone"]}
            ],
            "system_tools": [_PHONE, {**_PHONE.model_dump(exclude_unset=True), "name": "call_back"}],
        }
    )
    model = MockLLM([json.dumps({"action": "respond"}), "好的。"])
    caller = Api(config)
    async with caller, WorkflowOrchestrator(config, llm=model, caller=caller) as assistant:
        prompt = assistant.build_system_prompt()
        await assistant.query("今天天气怎么样")
    assert model.calls[0].messages[0].text == prompt
    assert prompt == build_system_prompt(config, ConfigToolLoader(config, caller).load())
    for part in ("小青", "回答简短。", "**leave** (请假)", "Customer wants a demo", "`call_back`"):
        assert part in prompt
    assert "kb.example" not in prompt
    assert "`save_phone`" not in prompt


async def test_parameters_that_a_flow_does_not_know_are_refused_in_words():
    config = FlowFile.model_validate({"flow_url": "https://hr.example", "flows": [LEAVE]})
    caller = Api(config)
    executor = FlowExecutor(check_flow_file(config), caller)
    with pytest.raises(InvalidInputError, match="has no input 'dayz'"):
        await executor.execute("leave", "请假", {"dayz": 3})
    await executor.aclose()
