"""Conversations with a file of flows, whose requests are answered here."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from loom_core.errors import NetError
from loom_core.flow.config import LoadedFlows, parse_flow_file
from loom_core.flow.config.models_endpoint import EndpointConfig
from loom_core.flow.expressions import ExpressionValues
from loom_core.flow.http import EndpointCaller
from loom_core.flow.http.response import EndpointResult
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.responses.reply import FlowReply
from loom_core.knowledge.model import KnowledgeItem
from loom_core.runs.journal import Journal

LEAVE: dict[str, Any] = {
    "flow_id": "leave",
    "name": "请假",
    "description": "Book a leave.",
    "trigger_patterns": ["请(?P<days>[\\d一二两三四五六七八九十]+)天假", "请.{0,4}假", "take leave"],
    "endpoint": "POST /leave",
    "response": "已提交：{$inputs.days}天，{$inputs.reason}",
    "input_schema": {
        "type": "object",
        "properties": {
            "days": {"type": "integer", "title": "天数", "minimum": 1},
            "reason": {"type": "string", "title": "事由"},
            "kind": {"type": "string", "enum": ["年假", "病假"], "title": "类型"},
            "day": {"type": "string", "format": "date", "title": "开始日期"},
        },
        "required": ["days", "reason"],
    },
}
ORDER: dict[str, Any] = {
    "flow_id": "order",
    "name": "查订单",
    "trigger_patterns": ["订单(?P<number>\\d+)", "where is order (?P<number>\\d+)"],
    "endpoint": "GET /order",
    "response": "订单{$inputs.number}在路上",
    "input_schema": {
        "type": "object",
        "properties": {"number": {"type": "string", "title": "订单号"}},
        "required": ["number"],
    },
}
CONFIRMED = {**LEAVE, "confirm": "always"}
RULES = KnowledgeItem("rules-7", "每年有15天年假。", "kb://rules", 0.9, {"title": "假期制度"})


class Api(EndpointCaller):
    """Answers each request with what it is told, and knows what was asked."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.answer: Callable[[str], Any] = lambda _: {"ok": True}

    async def call(
        self,
        endpoint: EndpointConfig,
        values: ExpressionValues,
        *,
        run_id: str = "",
        step_id: str = "",
        seconds: float | None = None,
    ) -> EndpointResult:
        self.asked.append((f"{endpoint.method} {endpoint.url}", dict(values.inputs), dict(values.context)))
        answered = self.answer(endpoint.url)
        if isinstance(answered, NetError):
            raise answered
        if isinstance(answered, EndpointResult):
            return answered
        return EndpointResult(200, {}, answered, 1, 0.0, endpoint.url, "")

    @property
    def requests(self) -> list[tuple[str, dict[str, Any]]]:
        return [(what, inputs) for what, inputs, _ in self.asked]


class Known:
    """A source of knowledge that answers at once, or when it is let."""

    def __init__(self, *items: KnowledgeItem, slow: bool = False) -> None:
        self.items = items
        self.asked: list[str] = []
        self.cancelled = anyio.Event()
        self.let = anyio.Event()
        self._slow = slow

    def identity(self, message: str, context: Mapping[str, Any]) -> str:
        return message

    async def find(self, message: str, context: Mapping[str, Any]) -> Sequence[KnowledgeItem]:
        self.asked.append(message)
        try:
            if self._slow:
                await self.let.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return self.items


def loaded_flows(*flows: Mapping[str, Any], tools: Any = (), **file: Any) -> LoadedFlows:
    written = {"flow_url": "http://127.0.0.1:9", "flows": list(flows or (LEAVE, ORDER)), **file}
    return parse_flow_file(json.dumps(written, ensure_ascii=False), tools=[each.name for each in tools])


class Talk:
    """One conversation with an assistant: `await talk("…")`."""

    def __init__(self, assistant: WorkflowOrchestrator, api: Api) -> None:
        self.assistant = assistant
        self.api = api
        self.session_id = ""

    async def __call__(self, message: str, **options: Any) -> FlowReply:
        given: dict[str, Any] = {"session_id": self.session_id, **options}
        reply = await self.assistant.query(message, **given)
        self.session_id = reply.session_id
        return reply


@asynccontextmanager
async def talking(
    *flows: Mapping[str, Any],
    file: Mapping[str, Any] | None = None,
    journal: Journal | None = None,
    tools: Any = (),
    **options: Any,
) -> AsyncGenerator[Talk]:
    """A conversation about flows, those of above by default; `file` is what else the file says."""
    loaded = loaded_flows(*flows, tools=tools, **(file or {}))
    async with Api(loaded.file) as api:
        given: dict[str, Any] = {"caller": api, "tools": tools, "look_seconds": None, **options}
        async with WorkflowOrchestrator(loaded, journal=journal, **given) as assistant:
            yield Talk(assistant, api)


def command(action: str, target: str = "", **more: Any) -> dict[str, Any]:
    """One command of a model."""
    return {"action": action, "target": target, "confidence": 0.9, "reason": "because", **more}


def decides(action: str, target: str = "", **more: Any) -> str:
    """Return the model's reply that makes this decision."""
    return json.dumps(command(action, target, **more), ensure_ascii=False)


def decides_on(*commands: Mapping[str, Any]) -> str:
    """Return the model's reply with several commands."""
    return json.dumps({"commands": commands}, ensure_ascii=False)
