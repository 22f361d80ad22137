"""Visibility: models see only permitted data over a long conversation.

Flows partly: what they are called, what they are for, their inputs; not what they ask, nor their steps.
Skills and system tools whole, but for where their requests go. Knowledge as passages where an answer is
written, and never as a tool.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

from loom_core.flow.config import parse_flow_file
from loom_core.flow.http import EndpointCaller
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.responses.reply import FlowReply
from loom_core.llm.interface import ChatRequest
from loom_core.net.retry import RetryPolicy
from loom_core.runs.commands import Abort
from loom_core.testing import MockLLM, call
from tests.unit.flow.conftest import decides

_DAYS = {"type": "object", "properties": {"days": {"type": "integer", "title": "天数"}}, "required": ["days"]}
_FILE: dict[str, Any] = {
    "basic_settings": {"name": "小竹", "instructions": "回答简短。"},
    "retrieve_knowledge_url": "/hidden-knowledge",
    "flows": [
        {
            "flow_id": "pay",
            "name": "付款",
            "description": "给供应商付款。",
            "trigger_patterns": ["付款"],
            "steps": [
                {"stepId": "step_look", "operation": "GET /hidden-balance"},
                {
                    "stepId": "step_charge",
                    "operation": {
                        "method": "POST",
                        "url": "/hidden-charge",
                        "headers": {"X-Hidden-Team": "env:PAY_TOKEN"},
                    },
                },
            ],
        },
        {
            "flow_id": "leave",
            "name": "请假",
            "description": "为员工请假。",
            "trigger_patterns": ["请假"],
            "input_schema": _DAYS,
            "endpoint": {"url": "/hidden-leave", "method": "POST", "failure": "{$response.body#/msg}"},
        },
        {
            "flow_id": "dead",
            "name": "查物流",
            "trigger_patterns": ["物流"],
            "endpoint": "GET http://127.0.0.1:1/hidden-dead",
        },
        {
            "flow_id": "unset",
            "name": "查库存",
            "trigger_patterns": ["库存"],
            "endpoint": {"url": "/hidden-stock", "headers": {"Authorization": "env:HIDDEN_UNSET"}},
        },
        {
            "flow_id": "flow_switched_off",
            "name": "内部对账",
            "description": "对账。",
            "trigger_patterns": ["对账"],
            "endpoint": "POST /hidden-audit",
            "enabled": False,
        },
    ],
    "skills": [{"condition": "客户投诉", "action": "用 open_ticket 记下来", "tools": ["open_ticket"]}],
    "system_tools": [
        {"name": "prices", "description": "镜片价格。", "endpoint": "GET /hidden-prices"},
        {
            "name": "open_ticket",
            "description": "记工单。",
            "confirm": False,
            "endpoint": "POST /hidden-tickets",
        },
    ],
}
_HIDDEN = (
    *("127.0.0.1", "http://", "https://", "hidden", "Hidden", "step_", "PAY_TOKEN", "tok-4711"),
    *(
        "ORA-00942",
        "HR.SALARY",
        "stack trace",
        "flow_switched_off",
        "对账",
        "retrieve_knowledge",
        "Correct what",
    ),
)


class Script:
    """Answers a model with what is next, and keeps what it was shown."""

    def __init__(self) -> None:
        self.seen: list[ChatRequest] = []
        self.next: list[Any] = []

    def __call__(self, request: ChatRequest) -> Any:
        self.seen.append(request)
        return self.next.pop(0)

    @property
    def texts(self) -> list[str]:
        """All of each request: messages with calls and results, tools, what the answer has to be."""
        return [f"{each.messages} {each.tools} {each.output}" for each in self.seen]


def answers(status: int, body: dict[str, str]) -> Any:
    async def answer(_: Any) -> JSONResponse:
        return JSONResponse(body, status)

    return answer


@pytest.mark.slow
async def test_models_see_what_they_may_and_nothing_else(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAY_TOKEN", "tok-4711")
    broken = answers(500, {"message": "ORA-00942 table HR.SALARY: stack trace"})
    api.on("/hidden-charge", broken)
    api.on("/hidden-leave", answers(422, {"msg": "余额不足", "trace": "stack trace"}))
    api.on("/hidden-tickets", broken)
    api.on("/hidden-prices", broken)
    api.on("/hidden-knowledge", [{"id": "k1", "content": "年假十五天。", "title": "制度"}], broken)
    script, said = Script(), list[FlowReply]()
    respond = decides("respond")

    async def talk(message: str, *turns: Any) -> str:
        script.next = list(turns)
        session = said[-1].session_id if said else ""
        said.append(await assistant.query(message, session_id=session))
        assert script.next == []
        return said[-1].text

    written = {**_FILE, "flow_url": api.url, "net": {"allow": ["127.0.0.1"]}}
    loaded = parse_flow_file(json.dumps(written, ensure_ascii=False))
    async with (
        EndpointCaller(loaded.file, retry=RetryPolicy(base=0.001, cap=0.001)) as caller,
        WorkflowOrchestrator(loaded, llm=MockLLM(script), caller=caller, look_seconds=None) as assistant,
    ):
        assert await talk("年假有几天？", respond, "年假十五天 [k1]。") == "年假十五天 [k1]。"
        assert (await talk("我要付款")).startswith("“付款”没有办成。办理所用的系统出了故障。")
        await talk("刚才是怎么回事呢？", respond, "系统出了故障。")  # from here on knowledge fails, too
        await talk("再试一次")
        await talk("我要请假")
        assert (await talk("三天")).startswith("“请假”没有办成。余额不足")
        assert (await talk("查一下物流")).startswith("“查物流”没有办成。办理所用的系统现在连不上。")
        assert (await talk("看看库存")).startswith("“查库存”没有办成。我们这边出了问题。")
        await talk("你们怎么老是出错？", respond, "抱歉。")
        await talk("眼镜坏了，我很生气", decides("skill", "skill-1"), call("open_ticket"), "没有记下来。")
        await talk("镜片多少钱一副", decides("tool", "prices"), call("prices"), "现在查不到。")
        await talk("我要请假")
        await assistant.send_command(said[-1].run_id, Abort(by="王芳"))
        await talk("这些事到底办成了几件？", respond, "都没有办成。")
    assert len(script.seen) == 14
    assert [each for each in _HIDDEN for shown in script.texts if each in shown] == []
    assert [each for each in _HIDDEN for reply in said if each in reply.text] == []
    assert {tool.name for shown in script.seen for tool in shown.tools} == {"open_ticket", "prices"}
    deciding = script.texts[-2]
    known = ("给供应商付款。", "为员工请假。", "`days`", "客户投诉", "用 open_ticket 记下来", "镜片价格。")
    assert [each for each in known if each not in deciding] == []
    assert any("余额不足" in shown for shown in script.texts)  # the file tells users
    assert "年假十五天" not in script.texts[0]  # knowledge answers, and does not decide
    assert "年假十五天" in script.texts[1]
