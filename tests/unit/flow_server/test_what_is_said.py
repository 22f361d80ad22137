"""Texts for people in tool results: forms and ends of runs, in the language of their conversation."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import ElicitResult


async def test_a_form_shows_each_value_on_a_line_of_its_own_and_no_character_that_acts(write, connect, call):
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"to": {**text, "title": "收件人 / to"}, "what": text}}
    end = {"type": "end", "response": "好"}
    steps = [{"stepId": "keep", "onSuccess": [end]}]
    write({"flow_id": "note", "name": "记录", "confirm": "always", "input_schema": schema, "steps": steps})
    asked: list[str] = []

    async def answer(_: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    async with connect(elicitation_callback=answer) as client:
        inputs = {"to": "王芳", "what": "早\x1b[31m"}
        await call(client, "flow_run", flow_id="note", inputs=inputs, message="记一下")
    assert asked[0] == "要开始“记录”吗？\n收件人：王芳\nwhat：早\\x1b[31m"


@pytest.mark.usefixtures("company_file")
async def test_a_run_that_fails_while_it_is_waited_for_is_told_as_in_the_conversation(company, connect, call):
    async def yes(_: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={})

    company.fail("leave", 1, status=409)
    async with connect(elicitation_callback=yes) as client:
        failed = await call(client, "flow_chat", message="我想请一天假，从2027年3月1日开始")
        while failed["status"] == "input_required":
            message = "2027年3月1日"
            failed = await call(client, "flow_chat", message=message, session_id=failed["session_id"])
        run = await call(client, "flow_status", run_id=failed["run_id"])
    assert failed["status"] == "failed"
    assert failed["text"].startswith("“请假申请")
    assert "没有办成。" in failed["text"]
    assert "“再试一次”" in failed["text"]
    assert "submit" in run["problem"]
    assert "submit" not in run["output"] + failed["text"]


@pytest.mark.usefixtures("company_file")
async def test_a_no_in_a_form_reads_as_one_in_the_conversation(connect, call):
    async def no(_: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with connect(elicitation_callback=no) as client:
        reply = await call(client, "flow_chat", message="查订单")
        run = await client.call_tool("flow_status", {"run_id": reply["run_id"]})
    assert (reply["status"], reply["text"]) == ("aborted", "好的，没有执行。")
    assert "该运行已中止（操作者：用户）：未获同意" in run.content[0].text
    assert "aborted" not in run.content[0].text


@pytest.mark.usefixtures("company_file")
async def test_a_chinese_conversation_is_answered_in_chinese_down_to_the_last_line(connect, call):
    async with connect() as client:
        reply = await call(client, "flow_chat", message="查订单")
        told = await client.call_tool("flow_chat", {"message": "BO20418", "session_id": reply["session_id"]})
        run = await client.call_tool("flow_status", {"run_id": reply["run_id"]})
    text = told.content[0].text
    assert f"(会话 {reply['session_id']}, 运行 {reply['run_id']}, 作为回答（正在等待的问题）)" in text
    assert "下一步：" in text
    assert "已经做了：" in run.content[0].text
    assert "：完成" in run.content[0].text or ": 完成" in run.content[0].text


@pytest.mark.usefixtures("company_file")
async def test_an_english_conversation_is_answered_in_english(connect, call):
    async with connect() as client:
        reply = await call(client, "flow_chat", message="where is my order")
        told = await client.call_tool("flow_chat", {"message": "BO20418", "session_id": reply["session_id"]})
        run = await client.call_tool("flow_status", {"run_id": reply["run_id"]})
    assert "answer (pending)" in told.content[0].text
    assert ": success" in run.content[0].text
