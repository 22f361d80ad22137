"""The parts of the flow server in a program of its own: router, executors, tool loader, prompt, orchestrator.

    uv run examples/flow_program.py 我要请三天假 年假有几天？ "Please ring me at 13800138000"

A small API of an office runs along in the same process. With DEEPSEEK_API_KEY a model decides what rules
leave open; without it, rules decide alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from loom_core.errors import LoomError
from loom_core.flow import (
    ConfigToolLoader,
    EndpointCaller,
    FlowExecutor,
    FlowFile,
    FlowRouter,
    KnowledgeBaseExecutor,
    SystemExecutor,
    WorkflowOrchestrator,
    build_system_prompt,
)

MESSAGES = ["我要请三天假", "年假有几天？", "Please ring me at 13800138000"]
KNOWN = {"items": [{"id": "leave-1", "content": "每年有 12 天年假。", "title": "假期制度"}]}


class Office(BaseHTTPRequestHandler):
    """An API of the house: what is known, flows, and a tool that keeps telephone numbers."""

    def do_GET(self) -> None:
        """Answer with what is known."""
        self._answer(KNOWN)

    def do_POST(self) -> None:
        """Run a flow, or keep a number."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_flow = "flow_id" in asked
        self._answer({"done": asked["flow_id"], **asked["parameters"]} if is_flow else {"saved": asked})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def _answer(self, body: object) -> None:
        content = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def config_of(url: str) -> FlowFile:
    """A flow file as a program makes it; `read_flow_file` reads one instead."""
    phone = {"type": "object", "properties": {"phone": {"type": "string"}}, "required": ["phone"]}
    days = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    model = {"model": "deepseek"} if os.environ.get("DEEPSEEK_API_KEY") else {}
    return FlowFile.model_validate(
        {
            **model,
            "basic_settings": {"name": "小办", "description": "An assistant of the office."},
            "retrieve_knowledge_url": f"{url}/knowledge",
            "flow_url": f"{url}/flows",
            "flows": [
                {
                    "flow_id": "leave_request",
                    "name": "请假申请",
                    "description": "Requests leave for an employee.",
                    "trigger_patterns": ["请(?P<days>[一二两三四五\\d]+)天假"],
                    "input_schema": days,
                }
            ],
            "skills": [
                {"condition": "They leave a number", "action": "Save it", "tools": ["save_customer"]},
            ],
            "system_tools": [
                {
                    "name": "save_customer",
                    "description": "Save how a customer is reached.",
                    "parameters": phone,
                    "endpoint": f"POST {url}/customers",
                }
            ],
            "net": {"allow": ["127.0.0.1"]},
        }
    )


async def main(messages: list[str]) -> None:
    context = {"tenantId": "acme", "chatbotId": "office"}
    with office() as url:
        config = config_of(url)
        async with EndpointCaller(config) as http_client:
            await parts(config, context, http_client)
            async with WorkflowOrchestrator(config, context, http_client) as assistant:
                session = ""
                for message in messages:
                    reply = await assistant.query(message, session_id=session)
                    session = reply.session_id
                    print(f"> {message}\n{reply}  ({reply.route.action}, {reply.route.how})")


async def parts(config: FlowFile, context: dict[str, Any], http_client: EndpointCaller) -> None:
    """Each part by itself, as the orchestrator uses it."""
    router = FlowRouter(config.flows)
    flow = router.match_by_pattern("我要请三天假")
    print("router:", flow and flow.flow_id)

    knowledge = KnowledgeBaseExecutor(config.retrieve_knowledge_url, http_client, context)
    known = await knowledge.pre_query("年假有几天？")
    print("knowledge:", [item.content for item in known.items])

    executor = FlowExecutor(config.flow_url, http_client, context)
    run = await executor.execute("leave_request", "我要请三天假", {"days": 3})
    await executor.aclose()
    print("flow:", run.status, run.output)

    tools = ConfigToolLoader(config, http_client).load()
    print("tools:", [tool.name for tool in tools])
    print("prompt:", build_system_prompt(config, tools))
    system = SystemExecutor(http_client, context)
    print("system:", (await system.execute(config.system_tools[0], {"phone": "13800138000"})).text)


@contextmanager
def office() -> Generator[str]:
    """The address of the API, as long as it runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Office) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:] or MESSAGES))
    except LoomError as error:
        sys.exit(str(error))
