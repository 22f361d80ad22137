from __future__ import annotations

import json
import logging

import anyio
import pytest

from loom_core.errors import LoomError
from loom_core.mcp_client.callbacks import Callbacks, SamplingResult
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.tools.interface import QuestionAnswer
from tests.unit.mcp_client.asking_server import asking_server

pytestmark = pytest.mark.slow


@pytest.fixture(params=["modern", "legacy"])
def era(request):
    return request.param


def said(result) -> str:
    return result.content[0].text


async def test_a_question_is_answered_by_the_callback_in_both_eras(asking_connection, era):
    asked = []

    async def ask(question):
        asked.append(question)
        return QuestionAnswer("accept", {"name": "小明"})

    async with asking_connection(era=era, callbacks=Callbacks(ask=ask)) as connection:
        assert said(await connection.call_tool("greet", {})) == "accepted: 小明"

        async def no(question):
            return QuestionAnswer("decline")

        assert said(await connection.call_tool("greet", {}, ask=no)) == "declined: ", "of this call only"
    assert [(question.text, question.origin) for question in asked] == [("你叫什么名字？", "asking")]
    assert asked[0].schema["properties"]["name"]["type"] == "string"


async def test_a_child_is_answered_too(connected, asking, era):
    asked, steps = [], []

    async def ask(question):
        asked.append(question.origin)
        return QuestionAnswer("accept", {"name": "小红"})

    async def tell(done, total, message):
        steps.append(message)

    async with connected(asking(era=era), callbacks=Callbacks(ask=ask)) as connection:
        assert said(await connection.call_tool("greet", {})) == "accepted: 小红"
        await connection.call_tool("work", {"steps": 1}, progress=tell)
    assert (asked, steps) == (["asking"], ["第1步"])


async def test_a_question_that_nobody_answers_counts_as_cancelled(asking_connection, era):
    async def never(question):
        await anyio.sleep_forever()

    async def broken(question):
        raise LoomError("The terminal is gone.")

    callbacks = Callbacks(ask=never, seconds=0.2)
    async with asking_connection(era=era, callbacks=callbacks) as connection:
        assert said(await connection.call_tool("greet", {})) == "cancelled: "
        assert said(await connection.call_tool("greet", {}, ask=broken)) == "cancelled: "


async def test_a_server_knows_that_nobody_can_be_asked(asking_connection, era):
    async with asking_connection(era=era) as connection:
        assert said(await connection.call_tool("greet", {})) == "unavailable: "


async def test_the_time_of_a_call_stands_still_while_a_person_is_asked(asking_connection, era):
    async def slow(question):
        await anyio.sleep(1.2)
        return QuestionAnswer("accept", {"name": "慢"})

    async with asking_connection(era=era, callbacks=Callbacks(ask=slow)) as connection:
        await connection.ready(40)
        assert said(await connection.call_tool("greet", {}, seconds=0.8)) == "accepted: 慢"


async def test_a_model_is_asked_only_where_the_configuration_allows_it(asking_connection, era):
    asked = []

    async def sample(request):
        asked.append(request)
        return SamplingResult("四", model="mock")

    callbacks = Callbacks(sample=sample)
    async with asking_connection(era=era, sampling=True, callbacks=callbacks) as connection:
        assert said(await connection.call_tool("think", {})) == "四"
    assert asked[0].turns[0].text == "2+2?"
    assert (asked[0].system, asked[0].max_tokens, asked[0].origin) == ("short", 10, "asking")
    async with asking_connection(era=era, callbacks=callbacks) as connection:
        assert said(await connection.call_tool("think", {})) == "no model"
    assert len(asked) == 1


async def test_roots_are_those_of_the_configuration(asking_connection, era, tmp_path):
    folder = tmp_path / "资料"
    folder.mkdir()
    async with asking_connection(era=era, roots=(folder,)) as connection:
        assert said(await connection.call_tool("look", {})) == str([folder.as_uri()])


async def test_progress_comes_through(asking_connection, era):
    steps = []

    async def tell(done, total, message):
        steps.append((done, total, message))

    async with asking_connection(era=era) as connection:
        await connection.call_tool("work", {"steps": 1}, progress=tell)
    assert steps == [(1, 1, "第1步")]


async def test_a_cancelled_call_is_cancelled_at_the_server_and_changes_are_told(asking_connection, era):
    changed = anyio.Event()

    def on_change(change):
        if change == "tools":
            changed.set()

    async with asking_connection(era=era, on_change=on_change) as connection:
        await connection.ready(40)
        assert connection.facts.modern == (era == "modern")
        with anyio.fail_after(20):
            while not changed.is_set():  # the server may not be listening for listeners yet
                await connection.call_tool("change", {})
                with anyio.move_on_after(0.2):
                    await changed.wait()
        with anyio.move_on_after(0.3):
            await connection.call_tool("wait", {"name": "茶"})
        assert said(await connection.call_tool("ended", {})) == "茶"


async def test_who_listens_for_changes_listens_again_when_the_server_has_hung_up(connected, serving):
    told = anyio.Event()

    def on_change(change):
        if change == "tools":
            told.set()

    server = asking_server()
    async with serving(server) as url:
        entry = ServerConfig(name="asking", transport="http", url=url)
        async with connected(entry, on_change=on_change) as connection:
            with anyio.fail_after(20):
                while not told.is_set():
                    await connection.call_tool("change", {})
                    with anyio.move_on_after(0.2):
                        await told.wait()
                told = anyio.Event()
                server.end_subscriptions()
                await told.wait()  # changes meanwhile may have gone unreported


def form(text):
    params = {"mode": "form", "message": text, "requestedSchema": {"type": "object", "properties": {}}}
    return {"method": "elicitation/create", "params": params}


def conversation(content):
    messages = [{"role": "user", "content": content}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 1}}


async def test_a_person_may_be_sent_to_a_page_and_gives_no_content_there(connected, raw):
    asked = []

    async def ask(question):
        asked.append(question)
        return QuestionAnswer("accept", {"secret": "not for the server"})

    params = {"mode": "url", "message": "请登录", "url": "https://登录.example/", "elicitationId": "1"}
    async with connected(raw(), callbacks=Callbacks(ask=ask)) as connection:
        question = {"method": "elicitation/create", "params": params}
        answers = json.loads(said(await connection.call_tool("ask", {"questions": [question]})))
    assert answers == [{"action": "accept"}]
    assert (asked[0].text, asked[0].url, asked[0].schema) == ("请登录", "https://登录.example/", {})


async def test_a_server_cannot_ask_a_hundred_things_at_once(connected, raw):
    open_questions, most = 0, 0

    async def ask(question):
        nonlocal open_questions, most
        open_questions += 1
        most = max(most, open_questions)
        await anyio.wait_all_tasks_blocked()
        open_questions -= 1
        return QuestionAnswer("decline")

    async with connected(raw(), callbacks=Callbacks(ask=ask)) as connection:
        given = {"questions": [form(str(number)) for number in range(100)]}
        answers = json.loads(said(await connection.call_tool("ask", given)))
    assert {answer["action"] for answer in answers} <= {"decline", "cancel"}
    assert 1 <= most <= 8


async def test_a_model_is_asked_texts_only_and_its_refusal_is_told_without_secrets(connected, raw):
    async def sample(request):
        raise LoomError("No model for sk-geheim.")

    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    config = raw(sampling=True, env={"API_KEY": "sk-geheim"})
    async with connected(config, callbacks=Callbacks(sample=sample)) as connection:
        questions = [conversation(picture), conversation({"type": "text", "text": "二加二？"})]
        answers = json.loads(said(await connection.call_tool("ask", {"questions": questions})))
    assert answers == ["Only texts can be answered", "No model for [secret]."]


async def test_what_a_server_notes_is_logged_at_debug(connected, raw, caplog):
    caplog.set_level(logging.DEBUG, "loom_core.mcp_client")
    async with connected(raw()) as connection:
        await connection.call_tool("flood", {"count": 1})
    assert "raw says (info): 'yyy" in caplog.text
