"""The tools of loom-flow-server, over the in-memory transport, against the example's business."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any, cast

import anyio
import pytest
from loom_flow.app import build
from loom_flow.mcp_tools.tools import choose_by_elicitation
from mcp import Client
from mcp_types import ClientCapabilities, ElicitResult

from loom_core.errors import NotFoundError
from loom_core.flow.responses.reply import CHOICE
from loom_core.runs.run import Pending
from loom_core.server.auth.caller import Caller, use_caller
from loom_core.server.calls.client_input import RoundTrips
from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.long_polling import LONGEST_WAIT

pytestmark = pytest.mark.slow

YES = ElicitResult(action="accept", content={})
NO = ElicitResult(action="decline")
CLOSED = ElicitResult(action="cancel")
ADA = Caller("ada", frozenset({"read", "write"}), id="token:ada")
BOB = Caller("bob", frozenset({"read", "write"}), id="token:bob")
ORDERS_ONLY = Caller("ops", frozenset({"read", "write"}), frozenset({"order_status"}), id="token:ops")


def user(*answers):
    """A client's user who gives these answers in turn, and what they were asked."""
    waiting, asked = list(answers), []

    async def answer(_context, params):
        asked.append(params)
        return waiting.pop(0)

    return answer, asked


def given(**content):
    return ElicitResult(action="accept", content=content)


async def answer_that(fits, ask):
    """The first answer that fits: a changed file is looked at once a second."""
    answer = await ask()
    while not fits(answer):
        await anyio.sleep(0.05)
        answer = await ask()
    return answer


@pytest.fixture(params=["auto", "legacy"])
def mode(request):
    return request.param


@pytest.mark.usefixtures("company_file")
async def test_a_conversation_asks_confirms_and_submits_once(company, connect, call):
    async with connect() as client:
        asked = await call(client, "flow_chat", message="我想请三天假")
        assert asked["status"] == "input_required"
        assert asked["route"]["how"] == "rules"
        assert "从哪天开始" in asked["text"]
        assert asked["session_id"] in asked["next"]
        session = asked["session_id"]
        confirm = await call(client, "flow_chat", message="2027年3月1日", session_id=session)
        assert "2027年3月1日（周一） 起 3 天年假（余 12 天）" in confirm["text"]
        assert company.done == []
        corrected = await call(client, "flow_chat", message="改成两天", session_id=session)
        assert "2027年3月1日（周一） 起 2 天年假" in corrected["text"]
        done = await call(client, "flow_chat", message="是的", session_id=session)
    assert done["status"] == "completed"
    assert done["structured"] == {"number": "LV-0001"}
    assert [what for what, _ in company.done] == ["leave", "notification"]
    assert company.done[0][1] == {"employee": "E007", "days": 2, "start": "2027-03-01", "kind": "年假"}


@pytest.mark.usefixtures("company_file")
async def test_the_user_is_asked_by_their_client_in_both_eras(mode, company, connect, call):
    answer, asked = user(given(start="2027-03-01"), YES)
    async with connect(mode=mode, elicitation_callback=answer) as client:
        done = await call(client, "flow_chat", message="我想请三天假")
        runs = (await call(client, "flow_list"))["unfinished"]
    assert done["status"] == "completed"
    assert "LV-0001" in done["text"]
    assert runs == []
    assert len(company.done) == 2, "a call that is made again with the answer is the same run"
    assert asked[0].message == "请假申请还需要：从哪天开始。"
    assert asked[0].requested_schema["required"] == ["start"]
    assert "余 12 天" in asked[1].message
    assert "天数：3" in asked[1].message


@pytest.mark.usefixtures("company_file")
async def test_an_answer_that_does_not_fit_is_asked_for_again(mode, connect, call):
    answer, asked = user(given(order_id="abc"), given(order_id="nr. 1"), given(order_id="BO20419"))
    async with connect(mode=mode, elicitation_callback=answer) as client:
        run = await call(client, "flow_run", flow_id="order_status")
    assert run["status"] == "completed"
    assert run["structured"] == {"status": "ready"}
    assert len(asked) == 3
    assert "pattern" not in asked[0].requested_schema["properties"]["order_id"], "no form knows that keyword"


@pytest.mark.usefixtures("company_file")
async def test_a_user_who_declines_ends_the_flow_and_nothing_is_done(mode, company, connect, call):
    answer, _ = user(NO)
    async with connect(mode=mode, elicitation_callback=answer) as client:
        run = await call(
            client, "flow_run", flow_id="leave_request", inputs={"days": 1, "start": "2027-03-01"}
        )
    assert run["status"] == "aborted"
    assert company.done == []


@pytest.mark.usefixtures("company_file")
async def test_what_is_only_named_is_offered_and_begun_when_the_user_says_so(mode, company, connect, call):
    answer, asked = user(given(choice=False))
    async with connect(mode=mode, elicitation_callback=answer) as client:
        reply = await call(client, "flow_chat", message="我不请假了")
        assert reply["status"] == "completed"
        assert (await call(client, "flow_list"))["unfinished"] == []
    assert "请假申请" in asked[0].message
    answer, asked = user(given(choice=True), given(days=2, start="2027-03-01"), YES)
    async with connect(mode=mode, elicitation_callback=answer) as client:
        reply = await call(client, "flow_chat", message="我不请假了")
        assert reply["status"] == "completed"
        assert reply["route"]["how"] == "choice"
    assert [what for what, _ in company.done] == ["leave", "notification"]


@pytest.mark.usefixtures("company_file")
async def test_one_of_two_flows_is_chosen_in_a_form(connect, call):
    answer, asked = user(given(choice="订单查询"), given(order_id="BO20418"))
    async with connect(elicitation_callback=answer) as client:
        reply = await call(client, "flow_chat", message="我要请假查一下订单")
    assert asked[0].requested_schema["properties"]["choice"]["enum"] == ["订单查询", "请假申请"]
    assert reply["flow_id"] == "order_status"
    assert reply["status"] == "completed"


@pytest.mark.usefixtures("company_file")
async def test_a_question_that_is_closed_waits_and_is_asked_again_later(connect, call):
    answer, asked = user(CLOSED, given(order_id="BO20418"))
    async with connect(elicitation_callback=answer) as client:
        run = await call(client, "flow_run", flow_id="order_status")
        assert run["status"] == "input_required"
        assert "flow_status" in run["next"]
        done = await call(client, "flow_status", run_id=run["run_id"], wait_seconds=45)
    assert done["status"] == "completed"
    assert len(asked) == 2


@pytest.mark.usefixtures("company_file")
async def test_without_forms_the_answer_is_passed_on_by_flow_resume(company, connect, call, refused):
    async with connect() as client:
        run = await call(client, "flow_run", flow_id="leave_request", inputs={"days": 3})
        assert run["pending"][0]["answer_schema"]["required"] == ["start"]
        assert "does not wait for a yes or no" in await refused(
            client, "flow_resume", run_id=run["run_id"], action="approve"
        )
        assert "there is no answer" in await refused(
            client, "flow_resume", run_id=run["run_id"], action="answer"
        )
        run = await call(
            client, "flow_resume", run_id=run["run_id"], action="answer", answer={"start": "2027-03-01"}
        )
        assert run["status"] == "input_required"
        assert run["pending"][0]["kind"] == "approval"
        assert run["steps"][0]["outputs"]["left"] == 12
        run = await call(client, "flow_resume", run_id=run["run_id"], action="approve", answer={"days": 1})
    assert run["status"] == "completed", run
    assert company.done[0][1]["days"] == 1
    assert [step["step_id"] for step in run["steps"]] == ["balance", "agreed", "enough", "submit", "notify"]


@pytest.mark.usefixtures("company_file")
async def test_a_step_that_failed_is_retried_alone(company, connect, call, refused):
    company.fail("leave", 1, status=409)
    async with connect() as client:
        run = await call(
            client, "flow_run", flow_id="leave_request", inputs={"days": 3, "start": "2027-03-01"}
        )
        failed = await call(client, "flow_resume", run_id=run["run_id"], action="approve")
        assert failed["status"] == "failed"
        assert "维护" in failed["problem"]
        assert "retry" in failed["next"]
        done = await call(client, "flow_resume", run_id=run["run_id"], action="retry")
        assert "nothing to retry" in await refused(
            client, "flow_resume", run_id=run["run_id"], action="retry"
        )
    assert done["status"] == "completed"
    assert [what for what, _ in company.done].count("leave") == 1


@pytest.mark.usefixtures("company_file")
async def test_a_run_that_failed_on_a_wrong_input_is_retried_with_the_right_one(connect, call, refused):
    async with connect() as client:
        run = await call(client, "flow_run", flow_id="order_status", inputs={"order_id": "BO99999"})
        assert run["status"] == "failed"
        for action in ("resume", "pause", "abort", "deny"):
            given = {"run_id": run["run_id"], "action": action, "answer": {"order_id": "BO20418"}}
            assert "An answer has no meaning" in await refused(client, "flow_resume", **given)
        given = {"run_id": run["run_id"], "action": "retry"}
        assert "order_id" in await refused(client, "flow_resume", **given, answer={"order_id": "x"})
        done = await call(client, "flow_resume", **given, answer={"order_id": "BO20418"})
    assert done["status"] == "completed"
    assert "BO20418" in done["output"]


@pytest.mark.usefixtures("company_file")
async def test_a_run_is_aborted_and_taken_up_again(connect, call):
    async with connect() as client:
        run = await call(client, "flow_run", flow_id="order_status")
        gone = await call(client, "flow_resume", run_id=run["run_id"], action="abort", reason="不查了")
        assert gone["status"] == "aborted"
        assert "不查了" in gone["problem"]
        back = await call(client, "flow_resume", run_id=run["run_id"], action="resume")
        assert back["status"] == "input_required"


@pytest.mark.usefixtures("company_file")
async def test_the_same_key_begins_one_run_and_says_the_same(connect, call):
    async with connect() as client:
        first = await call(client, "flow_chat", message="我想请三天假", idempotency_key="k1")
        again = await call(
            client, "flow_chat", message="我想请三天假", idempotency_key="k1", session_id=first["session_id"]
        )
        one = await call(client, "flow_run", flow_id="order_status", idempotency_key="k2")
        two = await call(client, "flow_run", flow_id="order_status", idempotency_key="k2")
    assert first["run_id"] == again["run_id"]
    assert one["run_id"] == two["run_id"]


@pytest.mark.usefixtures("company_file")
async def test_what_a_message_would_do_is_explained_and_not_done(company, connect, call):
    async with connect() as client:
        no = await call(client, "flow_explain", message="我不请假了")
        yes = await call(client, "flow_explain", message="我想请三天假")
        runs = (await call(client, "flow_list"))["unfinished"]
    assert (no["action"], no["candidates"], no["matches"][0]["doubt"]) == (
        "clarify",
        ["leave_request"],
        "negation",
    )
    assert (yes["action"], yes["flow_id"], yes["inputs"]) == ("flow", "leave_request", {"days": 3})
    assert yes["missing"] == ["start"]
    assert yes["timings"]["rules"] < 0.1
    assert runs == company.done == []


@pytest.mark.usefixtures("company_file")
async def test_knowledge_answers_and_is_cited(connect, call):
    async with connect() as client:
        reply = await call(client, "flow_chat", message="镜架保修多久？")
    assert reply["route"]["action"] == "respond"
    assert reply["citations"][0]["title"] == "质保"
    assert "一年" in reply["text"]


@pytest.mark.usefixtures("company_file")
async def test_events_and_resources_tell_what_happened(connect, call):
    async with connect() as client:
        run = await call(client, "flow_run", flow_id="order_status", inputs={"order_id": "BO20418"})
        status = await call(client, "flow_status", run_id=run["run_id"], after_seq=0)
        types = [event["type"] for event in status["events"]]
        assert types[0] == "request_start" or "flow_start" in types
        assert types[-1] == "flow_finish"
        flows = await client.read_resource("loom://flows")
        assert "leave_request" in flows.contents[0].text
        read = json.loads((await client.read_resource(f"loom://runs/{run['run_id']}")).contents[0].text)
        assert read["status"] == "completed"
        lines = (await client.read_resource(f"loom://runs/{run['run_id']}/events")).contents[0].text
        assert len(lines.splitlines()) == len(types)
        prompts = [each.name for each in (await client.list_prompts()).prompts]
        assert prompts == ["chat", "unfinished"]
        shown = await client.get_prompt("unfinished", {"run_id": run["run_id"]})
        assert "BO20418" in shown.messages[0].content.text


@pytest.mark.usefixtures("company_file")
async def test_flows_are_tools_of_their_own_and_ask_for_what_is_missing(mode, connect, call):
    answer, _ = user(given(order_id="BO20500"))
    async with connect(mode=mode, elicitation_callback=answer) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["order_status"].annotations.read_only_hint
        assert tools["leave_request"].annotations.destructive_hint
        assert tools["order_status"].input_schema["required"] == ["order_id"]
        assert "appointment" not in tools
        run = await call(client, "order_status")
    assert run["structured"] == {"status": "shipped"}


async def test_a_hidden_flow_is_listed_and_marked(write, connect, call):
    step = {"stepId": "a", "ask": "Name?"}
    write({"flow_id": "sos", "hidden": True, "steps": [step]}, {"flow_id": "note", "steps": [step]})
    async with connect() as client:
        listed = await client.call_tool("flow_list", {})
        flows = (await call(client, "flow_list"))["flows"]
    assert {each["flow_id"]: each["hidden"] for each in flows} == {"sos": True, "note": False}
    sos, note = listed.content[0].text.splitlines()[:2]
    assert "Hidden" in sos
    assert "Hidden" not in note


async def test_a_changed_file_is_used_and_a_wrong_one_is_not(write, connect, call, home):
    ask = {"stepId": "a", "ask": "Name?"}
    write({"flow_id": "one", "trigger_patterns": ["eins"], "steps": [ask]})
    news = anyio.Event()

    async def heard(message):
        if "list_changed" in str(getattr(message, "method", "")) or "ListChanged" in type(message).__name__:
            news.set()

    async with connect(mode="legacy", message_handler=heard) as client:
        assert [flow["flow_id"] for flow in (await call(client, "flow_list"))["flows"]] == ["one"]
        flow = {"flow_id": "two", "trigger_patterns": ["zwei"], "steps": [ask], "as_tool": True}
        write({**flow, "description": "The second."}, {"flow_id": "one", "steps": [ask]})
        with anyio.fail_after(60):
            await answer_that(lambda answer: len(answer["flows"]) > 1, lambda: call(client, "flow_list"))
            await news.wait()
        assert "two" in [tool.name for tool in (await client.list_tools()).tools]
        assert (await call(client, "flow_chat", message="zwei"))["flow_id"] == "two"
        (home / "flow.json").write_text('{"flows": [{"flow_id": 7}]}')
        with anyio.fail_after(60):
            answer = await answer_that(lambda answer: answer["problems"], lambda: call(client, "flow_list"))
        assert "flow.json:1:" in answer["problems"][0]
        assert (await call(client, "flow_chat", message="zwei"))["flow_id"] == "two"


async def test_a_changed_file_exchanges_what_is_asked_for_knowledge(write, connect, call):
    flow = {"flow_id": "one", "steps": [{"stepId": "a", "ask": "Name?"}]}

    async def until(client, message, wanted):
        with anyio.fail_after(10):
            chat = partial(call, client, "flow_chat", message=message)
            await answer_that(lambda answer: wanted in answer["text"], chat)

    def rules(days):
        return {"kind": "documents", "documents": [{"text": f"年假每年有{days}天。"}]}

    write(flow, knowledge=rules(15))
    async with connect() as client:
        await until(client, "年假每年有几天？", "15天")
        write(flow, knowledge=rules(20))
        await until(client, "年假每年有几天？", "20天")
        write(flow, knowledge={"kind": "local", "knowledge_base": "nowhere"})
        with anyio.fail_after(10):
            answer = await answer_that(lambda answer: answer["problems"], lambda: call(client, "flow_list"))
        assert "no knowledge base 'nowhere'" in answer["problems"][0]
        assert "stays in use" in answer["problems"][0]
        await until(client, "年假每年有几天？", "20天")
        write(flow, knowledge=rules(20))
        with anyio.fail_after(10):
            await answer_that(lambda answer: not answer["problems"], lambda: call(client, "flow_list"))


async def test_without_a_file_it_starts_and_says_what_to_write(write, connect, call, refused):
    async with connect() as client:
        told = await refused(client, "flow_chat", message="hello")
        assert "loom-flow-server init" in told
        assert '"trigger_patterns"' in told
        write({"flow_id": "one", "trigger_patterns": ["eins"], "steps": [{"stepId": "a", "ask": "Name?"}]})
        assert (await call(client, "flow_chat", message="eins"))["flow_id"] == "one"


async def test_a_server_starts_with_a_wrong_file_says_where_it_is_wrong_and_uses_it_when_it_is_mended(
    home, write, connect, call, refused
):
    (home / "flow.json").write_text('{\n  "flows": [{ "flow_id": "a b" }]\n}', encoding="utf-8")
    async with connect() as client:
        assert "flow.json:2:" in await refused(client, "flow_chat", message="eins")
        assert "flow.json:2:" in (await call(client, "flow_list"))["problems"][0]
        write({"flow_id": "one", "trigger_patterns": ["eins"], "steps": [{"stepId": "a", "ask": "Name?"}]})
        assert (await call(client, "flow_chat", message="eins"))["flow_id"] == "one"


async def test_a_server_starts_without_the_file_that_was_named(home, settings, refused):
    server = build(settings(config=home / "other.json", config_given=True))
    async with Client(server.protocol) as client:
        told = await refused(client, "flow_chat", message="eins")
        assert "other.json does not exist" in told
        assert f"init --config {home / 'other.json'}" in told


async def test_a_model_without_a_key_leaves_the_rules_alone(write, connect, call):
    write(
        {"flow_id": "one", "trigger_patterns": ["eins"], "steps": [{"stepId": "a", "ask": "?"}]},
        model="deepseek",
    )
    async with connect() as client:
        listed = await call(client, "flow_list")
        assert listed["model"] == ""
        assert "DEEPSEEK_API_KEY" in listed["problems"][0]
        assert (await call(client, "flow_chat", message="eins"))["flow_id"] == "one"


@pytest.mark.usefixtures("company_file")
async def test_runs_and_sessions_belong_to_who_began_them(running):
    async with running() as service:
        with use_caller(ADA):
            begun = await service.start("order_status", {})
            run = await service.wait_until_idle(begun.id, seconds=30)  # until it asks for the number
            assert service.can_decide(run)
        with use_caller(BOB):
            assert not service.can_decide(run)
            for look in (service.run, service.steps, service.events):
                with pytest.raises(NotFoundError):
                    await look(run.id)
            with pytest.raises(NotFoundError):
                await service.chat("BO20418", session_id=run.request.session_id)
            assert await service.runs() == []
        with use_caller(ADA):
            reply = await service.chat("BO20418", session_id=run.request.session_id, seconds=30)
            done = await service.wait_until_idle(run.id, after=run.last_seq, seconds=30)
    assert reply.run_id == run.id
    assert done.status == "completed"


@pytest.mark.usefixtures("company_file")
async def test_a_token_that_is_bound_to_flows_has_no_others(running):
    async with running() as service:
        with use_caller(ORDERS_ONLY):
            assert [flow.flow_id for flow in (await service.list_flows()).flows] == ["order_status"]
            reply = await service.chat("我想请三天假")
            assert reply.flow_id == ""
            with pytest.raises(NotFoundError, match="leave_request"):
                await service.start("leave_request", {})
            assert (await service.chat("BO20418 状态", seconds=30)).flow_id == "order_status"


async def test_progress_is_told(company_file, connect):
    told: list[str] = []

    async def note(_progress, _total, message):
        told.append(message)

    answer, _ = user(YES)
    async with connect(elicitation_callback=answer) as client:
        arguments = {"flow_id": "leave_request", "inputs": {"days": 1, "start": "2027-03-01"}}
        done = await client.call_tool("flow_run", arguments, progress_callback=note)
    assert done.structured_content["status"] == "completed"
    assert company_file.exists()
    assert told


async def test_a_choice_that_comes_in_a_call_of_its_own_may_take_longer_than_a_call():
    asked = {"answers": {}, "asked": {"choice.0": time.time() - 2 * LONGEST_WAIT}}
    chosen = {"action": "accept", "content": {"choice": "请假"}}
    ctx = ToolContext(
        session=cast("Any", None),  # no progress is reported
        request_id="1",
        protocol_version="2026-07-28",
        capabilities=ClientCapabilities.model_validate({"elicitation": {}}),
        client="",
        client_input=RoundTrips({"requestState": json.dumps(asked), "inputResponses": {"choice.0": chosen}}),
        task=None,
        _request=None,
    )
    schema = {"type": "object", "properties": {"choice": {"type": "string"}}}
    pending = Pending(id=CHOICE, kind="question", reason="请假还是报销？", schema=schema)
    until = anyio.current_time() + LONGEST_WAIT
    assert await choose_by_elicitation(ctx, [pending], name="choice.0", until=until) == "请假"
