"""`flow.json`: what it means, and that any other text is refused with a place."""

from __future__ import annotations

import json
import logging

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.flow.config import (
    FlowFileWatcher,
    flow_file_problems,
    flow_file_warnings,
    parse_flow_file,
    read_flow_file,
)
from loom_core.flow.config.models_endpoint import EndpointConfig
from loom_core.flow.config.models_step import StepConfig

FULL = r"""
{
  // comments and trailing commas are welcome
  "flow_url": "https://flow-api.example",
  "model": "deepseek/deepseek-flash",
  "retrieve_knowledge_url": "https://kb-api.example/retrieve",
  "context": { "tenantId": "demo" },
  "net": { "allow": ["10.0.0.0/8", "flow-api.corp"] },
  "flows": [
    {
      "flow_id": "请假",
      "name": "请假申请",
      "trigger_patterns": ["请(?P<天数>\\d+)天假", "我要请假"],
      "input_schema": {
        "type": "object",
        "properties": { "天数": { "type": "integer" }, "原因": { "type": "string" } },
        "required": ["天数"],
      },
      "steps": [
        { "stepId": "余额", "operation": "GET /balance", "outputs": { "剩余": "$response.body#/剩余" } },
        {
          "stepId": "确认",
          "confirm": "请 {$inputs.天数} 天，还剩 {$steps.余额.outputs.剩余} 天？",
          "onFailure": [{ "type": "end", "response": "好的。" }],
        },
        {
          "stepId": "提交",
          "parallel": [
            [{ "stepId": "leave", "operation": "POST /leave", "parameters": { "days": "{$inputs.天数}" } }],
            [{ "stepId": "notify", "tool": "notify", "parameters": { "who": "boss" } }],
          ],
        },
        { "stepId": "查", "workflowId": "order", "parameters": { "id": "{$steps.leave.outputs.result}" } },
      ],
      "response": "已提交 {$steps.leave.outputs.result#/id}",
    },
    {
      "flow_id": "order",
      "input_schema": { "type": "object", "properties": { "id": { "type": "string" } } },
      "endpoint": {
        "method": "GET",
        "url": "/orders/{$inputs.id}",
        "headers": { "Authorization": "Bearer env:ORDERS_TOKEN" },
      },
    },
  ],
  "skills": [{ "condition": "A demo is wanted.", "action": "Save it.", "tools": ["notify"] }],
  "system_tools": [
    {
      "name": "notify",
      "description": "Tells someone.",
      "parameters": { "type": "object", "properties": { "who": { "type": "string" } } },
      "endpoint": "POST https://notify.example/send",
    },
  ],
}
"""


def test_a_whole_file_is_read():
    loaded = parse_flow_file(FULL)
    leave, order = loaded.file.flows
    assert leave.title == "请假申请"
    assert [step.kind for step in leave.steps] == ["operation", "confirm", "parallel", "workflow"]
    assert leave.steps[2].parallel[0][0].request().body == {"days": "{$inputs.天数}"}
    assert leave.steps[3].arguments == {"id": "{$steps.leave.outputs.result}"}
    assert order.title == "order"
    assert loaded.file.skills[0].id == "skill-1"
    assert loaded.variables == ("ORDERS_TOKEN",)
    assert loaded.file.model
    assert loaded.file.model.provider == "deepseek"


def test_what_the_original_design_wrote_is_read():
    text = """
    {
      "basic_settings": {"name": "bot"},
      // KB URL
      "retrieve_knowledge_url": "http://kb-api.example.com/retrieve",
      "flow_url": "http://flow-api.example.com",
      "flows": [
        {"flow_id": "leave_request", "name": "请假申请",
         "trigger_patterns": ["我要请假", "申请.*假", "请.*天假"]}
      ],
      "skills": [
        {"condition": "Customer wants to schedule a demo", "action": "Save customer information",
         "tools": ["save_customer_information"]}
      ],
      "system_tools": [
        {"name": "save_customer_information", "description": "Save customer info",
         "parameters": {"type": "object"}, "endpoint": {"url": "https://crm.example/customers"}}
      ]
    }
    """
    file = parse_flow_file(text).file
    request = file.endpoint_of(file.flows[0])
    assert (request.method, request.url) == ("POST", "")
    assert request.body == {
        "flow_id": "leave_request",
        "message": "{$message}",
        "parameters": "{$inputs}",
        "context": "{$context}",
    }
    assert file.retrieve_knowledge_url
    assert file.retrieve_knowledge_url.query_field == "keywords"
    assert file.system_tools[0].endpoint.method == "POST"


def test_a_version_changes_with_what_is_said_only():
    version = parse_flow_file(FULL).version
    assert parse_flow_file(FULL.replace("// comments", "/* a remark */ // comments")).version == version
    assert parse_flow_file(FULL.replace("已提交", "提交了")).version != version


def test_a_request_is_what_its_step_says_of_it():
    step = (
        parse_flow_file(
            """{"flows": [{"flow_id": "f", "steps": [{
          "stepId": "s", "operation": "PUT https://api.example/x", "idempotent": false, "timeout_seconds": 5,
          "parameters": [
            {"name": "q", "in": "query", "value": 1}, {"name": "X-A", "in": "header", "value": "b"}
          ],
          "requestBody": {"contentType": "text/plain", "payload": "hello"}
        }]}]}"""
        )
        .file.flows[0]
        .steps[0]
    )
    request = step.request()
    assert (request.query, request.headers) == ({"q": 1}, {"X-A": "b"})
    assert (request.body, request.content_type) == ("hello", "text/plain")
    assert (request.repeatable, request.timeout_seconds, request.sends_inputs) == (False, 5, False)
    with pytest.raises(ValueError, match="makes no request"):
        step.model_copy(update={"operation": None}).request()


@pytest.mark.parametrize(
    ("operation", "query", "body"),
    [
        ("POST https://api.example/x", {"q": 1}, {"a": 2, "b": 3}),
        ("GET https://api.example/x", {"q": 1, "a": 2, "b": 3}, None),
        ({"url": "https://api.example/x", "body": {"c": 4}}, {"q": 1, "a": 2, "b": 3}, {"c": 4}),
    ],
)
def test_a_parameter_without_a_place_goes_into_the_body_next_to_others_with_one(operation, query, body):
    parameters = [
        {"name": "q", "in": "query", "value": 1},
        {"name": "X-A", "in": "header", "value": "b"},
        {"name": "a", "value": 2},
        {"name": "b", "value": 3},
    ]
    step = {"stepId": "s", "operation": operation, "parameters": parameters}
    request = StepConfig.model_validate(step).request()
    assert (request.query, request.body, request.headers) == (query, body, {"X-A": "b"})


@pytest.mark.parametrize(
    ("method", "idempotent", "repeatable"),
    [("GET", None, True), ("DELETE", None, True), ("POST", None, False), ("PATCH", True, True)],
)
def test_only_what_may_be_repeated_is_repeatable(method, idempotent, repeatable):
    assert EndpointConfig(method=method, idempotent=idempotent).repeatable == repeatable


def test_an_empty_text_is_no_flow_file():
    with pytest.raises(ConfigError, match="the file is empty"):
        parse_flow_file("// nothing")
    assert parse_flow_file("{}").file.flows == []


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(ConfigError, match="There is no file"):
        read_flow_file(tmp_path / "flow.json")
    assert str(flow_file_problems(tmp_path / "flow.json")[0]).startswith("There is no file")


def test_everything_that_is_wrong_can_be_listed(tmp_path):
    path = tmp_path / "flow.json"
    path.write_text(FULL, encoding="utf-8")
    assert flow_file_problems(path) == []
    assert read_flow_file(path).path == path
    path.write_text('{"skills": [{"condition": "a", "action": "b", "tools": ["x", "y", "z", "w"]}]}', "utf-8")
    assert len(flow_file_problems(path)) == 4
    path.write_text("// nothing", encoding="utf-8")
    assert [each.message for each in flow_file_problems(path)] == ["the file is empty."]


@pytest.mark.hostile("expressions and configurations")
@pytest.mark.parametrize(
    "text",
    [
        '{"context": {"a": "\\ud800"}}',
        '{"context": {"\\udfff": 1}}',
        '{"flows": [{"flow_id": "a", "description": "\\ud83d"}]}',
        "[" * 5000,
        '{"context":' * 300 + "1" + "}" * 300,
        '{"context": ' + "[" * 400 + "]" * 400 + "}",
        '{"flows":[{"flow_id":"a","steps":[' + '{"stepId":"s","parallel":[[' * 300 + "]]}" * 300 + "]}]}",
        '{"context": NaN}',
    ],
)
def test_hostile_texts_are_refused(text):
    with pytest.raises(ConfigError):
        parse_flow_file(text)


def refusal_of(text):
    """Why a text is no flow file; empty if it is one."""
    try:
        parse_flow_file(text)
    except ConfigError as error:
        return error.message
    return ""


_ALPHABET = '{}[]",:/*\\ \n0$aflows_id请假.steps'


@pytest.mark.hostile("expressions and configurations")
@given(text=st.text(alphabet=_ALPHABET, max_size=80))
def test_any_text_is_read_or_refused_with_its_place(text):
    refusal = refusal_of(text)
    assert not refusal or refusal.startswith("flow.json:")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_STEP = st.fixed_dictionaries(
    {"stepId": st.sampled_from(["a", "b", "步骤", "c d"]) | _JSON},
    optional={
        "operation": st.sampled_from(["GET /x", "POST https://h.example/{$inputs.x}", ""]) | _JSON,
        "tool": st.text(max_size=4) | _JSON,
        "workflowId": st.sampled_from(["f", "g"]) | _JSON,
        "ask": _JSON,
        "confirm": _JSON,
        "parameters": _JSON,
        "outputs": st.dictionaries(st.text(max_size=3), st.sampled_from(["$steps.a.outputs.x", "$x"]))
        | _JSON,
        "onFailure": st.lists(st.fixed_dictionaries({"type": st.sampled_from(["end", "goto", "retry"])}))
        | _JSON,
        "successCriteria": st.lists(st.text(max_size=8), max_size=2) | _JSON,
        "parallel": _JSON,
    },
)
_FILE = st.fixed_dictionaries(
    {
        "flows": st.lists(
            st.fixed_dictionaries(
                {"flow_id": st.sampled_from(["f", "g"])},
                optional={
                    "steps": st.lists(_STEP, max_size=3),
                    "trigger_patterns": st.lists(st.text(max_size=6), max_size=2) | _JSON,
                    "input_schema": _JSON,
                    "response": st.text(max_size=20),
                },
            ),
            max_size=3,
        )
    },
    optional={
        "flow_url": st.just("https://h.example") | _JSON,
        "net": _JSON,
        "skills": _JSON,
        "knowledge": _JSON,
    },
)


@pytest.mark.slow
@given(file=_FILE)
def test_any_file_is_read_or_refused_with_its_place(file):
    refusal = refusal_of(json.dumps(file))
    assert not refusal or refusal.startswith("flow.json:")


def _write(path, name):
    # As editors do: a new file in the place of the old one.
    new = path.with_suffix(".new")
    new.write_text(f'{{"basic_settings": {{"name": "{name}"}}}}', encoding="utf-8")
    new.replace(path)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "flow.json"
    _write(path, "一")
    return path


async def test_what_has_changed_is_read_again(path):
    watch = FlowFileWatcher(path, interval=0)
    first = await watch.latest()
    assert await watch.latest() is first
    _write(path, "二")
    second = await watch.latest()
    assert second.file.basic_settings.name == "二"
    assert second.version != first.version
    assert first.file.basic_settings.name == "一"
    assert watch.problem == ""


async def test_a_file_that_becomes_wrong_changes_nothing_and_it_is_said_so(path, caplog):
    watch = FlowFileWatcher(path, interval=0)
    first = await watch.latest()
    path.write_text('{"flows": [\n{"flow_id": 3}]}', encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert await watch.latest() is first
        assert await watch.latest() is first
    assert f"{path}:2:2: " in watch.problem
    assert len(caplog.records) == 1
    _write(path, "三")
    assert (await watch.latest()).file.basic_settings.name == "三"
    assert watch.problem == ""


@pytest.mark.parametrize("text", ["", "\n", "// later\n"])
async def test_a_file_that_an_editor_has_emptied_changes_nothing(path, text):
    watch = FlowFileWatcher(path, interval=0)
    first = await watch.latest()
    path.write_text(text, encoding="utf-8")
    assert await watch.latest() is first
    assert "the file is empty" in watch.problem
    with pytest.raises(ConfigError, match="the file is empty"):
        await FlowFileWatcher(path).latest()
    assert "the file is empty" in str(flow_file_problems(path)[0])


async def test_an_address_that_may_not_be_asked_is_warned_of(path, caplog):
    written = '{"flow_url": "http://169.254.169.254/", "net": {"allow": ["10.0.0.1"]}, "flows": [%s]}'
    flows = '{"flow_id": "a", "endpoint": "GET http://10.0.0.%d/x"}'
    path.write_text(written % flows % 1, encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        await FlowFileWatcher(path).latest()
    assert ["metadata" in each.getMessage() for each in caplog.records] == [True]
    path.write_text(written % flows % 2, encoding="utf-8")
    assert ["private address" in each.message for each in flow_file_warnings(path)] == [False, True]


async def test_a_file_that_is_taken_away_changes_nothing(path):
    watch = FlowFileWatcher(path, interval=0)
    first = await watch.latest()
    path.unlink()
    assert await watch.latest() is first
    assert "There is no file" in watch.problem
    _write(path, "一")
    assert await watch.latest() is first
    assert watch.problem == ""


async def test_what_was_never_in_order_is_refused(path):
    path.write_text("{", encoding="utf-8")
    watch = FlowFileWatcher(path, interval=0)
    with pytest.raises(ConfigError):
        await watch.latest()
    _write(path, "一")
    assert (await watch.latest()).file.basic_settings.name == "一"


async def test_between_two_looks_the_file_is_left_alone(path):
    watch = FlowFileWatcher(path, interval=3600)
    first = await watch.latest()
    _write(path, "二")
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(watch.latest)
    assert await watch.latest() is first
