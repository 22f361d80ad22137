"""Arazzo documents in and out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.flow.config import export_arazzo, import_arazzo, parse_flow_file

PETS = """
arazzo: 1.0.1
info: { title: Pets, version: 1.0.0 }
sourceDescriptions:
  - { name: pets, url: ./pets.openapi.yaml, type: openapi }
workflows:
  - workflowId: apply-coupon
    summary: Apply a coupon
    description: Finds a pet, and orders it.
    inputs: { $ref: "#/components/inputs/order" }
    parameters:
      - { name: X-Trace, in: header, value: $inputs.trace }
    failureActions:
      - reference: $components.failureActions.again
    steps:
      - stepId: find-pet
        operationId: findPets
        parameters:
          - { name: tag, in: query, value: $inputs.tag }
          - { reference: $components.parameters.page, value: 2 }
        successCriteria:
          - { condition: $statusCode == 200 }
          - { context: $response.body, condition: "$[?@.id]", type: { type: jsonpath, version: rfc9535 } }
        onFailure:
          - { name: stop, type: end, criteria: [{ condition: $statusCode == 404 }] }
        outputs: { pet: "$response.body#/0/id" }
      - stepId: coupon
        operationPath: "{$sourceDescriptions.pets.url}#/paths/~1pets~1{pet_id}~1coupon/get"
        timeout: 5000
        parameters:
          - { name: pet_id, in: path, value: $steps.find-pet.outputs.pet }
        outputs: { code: $response.body#/code }
      - stepId: order
        workflowId: place-order
        parameters:
          - { name: pet, value: $steps.find-pet.outputs.pet }
    outputs: { order: $steps.order.outputs.result }
  - workflowId: place-order
    inputs: { type: object, properties: { pet: { type: integer } } }
    steps:
      - stepId: place
        operationId: $sourceDescriptions.pets.placeOrder
        requestBody:
          contentType: application/json
          payload: '{"petId": "$inputs.pet", "note": "for {$inputs.pet}", "complete": false}'
        onSuccess: [{ name: done, type: end }]
components:
  inputs:
    order:
      type: object
      properties: { tag: { $ref: "#/components/inputs/tag" }, trace: { type: string } }
    tag: { type: string }
  parameters:
    page: { name: page, in: query, value: 1 }
  failureActions:
    again: { name: again, type: retry, stepId: find-pet, retryAfter: 1.5, retryLimit: 2 }
"""
API = """
openapi: 3.1.0
info: { title: Pets, version: 1.0.0 }
servers: [{ url: https://pets.example/v1/ }]
paths:
  /pets: { get: { operationId: findPets } }
  /pets/{pet_id}/coupon: { get: {} }
  /orders: { post: { operationId: placeOrder } }
"""
COUPON = PETS.replace("  - { name: X-Trace, in: header, value: $inputs.trace }", "  []")


def test_a_document_becomes_flows():
    found = import_arazzo(PETS, sources={"pets": API})
    coupon, order = found.flows
    assert found.flow_url == "https://pets.example/v1"
    assert (coupon.flow_id, coupon.name) == ("apply-coupon", "Apply a coupon")
    assert coupon.input_schema["properties"] == {"tag": {"type": "string"}, "trace": {"type": "string"}}
    find, look, run = coupon.steps
    assert find.operation
    assert (find.operation.method, find.operation.url) == ("GET", "/pets")
    assert find.operation.query == {"tag": "{$inputs.tag}", "page": 2}
    assert find.operation.headers == {"X-Trace": "{$inputs.trace}"}
    assert [each.type for each in find.success_criteria] == ["simple", "jsonpath"]
    assert [each.name for each in find.on_failure] == ["stop", "again"]
    assert find.on_failure[1].retry_after == 1.5
    assert look.operation
    assert look.operation.url == "/pets/{$steps.find-pet.outputs.pet}/coupon"
    assert look.timeout_seconds == 5
    assert run.arguments["pet"] == "{$steps.find-pet.outputs.pet}"
    request = order.steps[0].operation
    assert request
    assert request.body == {"petId": "{$inputs.pet}", "note": "for {$inputs.pet}", "complete": False}
    assert any("trigger_patterns" in note for note in found.notes)


def test_what_is_imported_is_a_flow_file():
    found = import_arazzo(COUPON, sources={"pets": API})
    loaded = parse_flow_file(found.text())
    assert loaded.file.flows == list(found.flows)


def test_without_the_description_operations_by_path_are_read():
    text = json.dumps(
        {
            "arazzo": "1.1.0",
            "info": {"title": "t", "version": "1"},
            "sourceDescriptions": [{"name": "a", "url": "a.json"}],
            "workflows": [
                {
                    "workflowId": "流程",
                    "steps": [
                        {"stepId": "步", "operationPath": "{$sourceDescriptions.a.url}#/paths/~1x/post"}
                    ],
                }
            ],
        }
    )
    found = import_arazzo(text)
    assert found.flows[0].steps[0].step_id == "步"
    assert any("flow_url" in note for note in found.notes)


def _changed(**step):
    return json.dumps(
        {
            "arazzo": "1.1.0",
            "info": {"title": "t", "version": "1"},
            "sourceDescriptions": [{"name": "a", "url": "a.json"}],
            "workflows": [
                {
                    "workflowId": "w",
                    "steps": [
                        {
                            "stepId": "s",
                            "operationPath": "{$sourceDescriptions.a.url}#/paths/~1x/post",
                            **step,
                        }
                    ],
                }
            ],
        }
    )


@pytest.mark.hostile("expressions and configurations")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "neither JSON nor YAML"),
        ("a: &x 1\nb: *x", "has aliases"),
        ("[]", "the whole should be an object"),
        ("{}", "arazzo is missing"),
        ('{"arazzo": "2.0.0"}', "arazzo is '2.0.0'. Loom reads Arazzo 1.0 and 1.1."),
        ("1: 2", "has a name that is not a string"),
        (_changed(channelPath="x"), "steps[0].channelPath belongs to messages"),
        (_changed(operationPath="x"), "is not an operation of a source"),
        (
            _changed(operationPath=None, operationId="x"),
            "'x' is not in the available sources. Give the OpenAPI",
        ),
        (_changed(operationPath=None), "operationId is missing"),
        (_changed(operationPath=None, workflowId="$sourceDescriptions.b.w"), "is in another document"),
        (
            _changed(operationPath="{$sourceDescriptions.a.url}#/paths/~1{id}/get"),
            "has no parameter for {id}",
        ),
        (_changed(parameters=[{"name": "a", "in": "cookie", "value": 1}]), "is in 'cookie'"),
        (_changed(parameters=[{"reference": "$components.parameters.a"}]), "which is not there"),
        (_changed(parameters={}), "should be a list"),
        (_changed(requestBody={"replacements": [{"target": "/a", "value": 1}]}), "replacements is not read"),
        (_changed(requestBody={"contentType": "text/xml"}), "content_type"),
        (
            _changed(
                requestBody={
                    "payload": {"a": {"context": "$response.body", "selector": "$", "type": "jsonpath"}}
                }
            ),
            "is a selector",
        ),
        (_changed(successCriteria=[{"condition": "x", "type": "xpath", "context": "y"}]), "is 'xpath'"),
        (_changed(onSuccess=[{"name": "a", "type": "goto", "workflowId": "b"}]), "is not followed"),
        (_changed(onFailure=[{"name": "a", "type": "retry", "retryAfter": "soon"}]), "should be a number"),
        (_changed(stepId="a b"), "an id is 1 to 64 letters"),
        (_changed(outputs={"a": {"context": "x"}}), "outputs.a should be a text"),
        (_changed().replace('"steps": [', '"dependsOn": ["v"], "steps": ['), "dependsOn is not read"),
        (
            _changed().replace(
                '"workflowId": "w",', '"workflowId": "w", "inputs": {"$ref": "#/components/inputs/i"},'
            ),
            "which is not there",
        ),
        ('{"arazzo": "1.1.0", "workflows": [{"workflowId": "w"}]}', "steps is empty"),
    ],
)
def test_what_flows_cannot_do_is_refused_with_its_place(text, said):
    with pytest.raises(ConfigError) as raised:
        import_arazzo(text)
    assert said in str(raised.value)


def test_a_source_that_the_document_does_not_name_is_refused():
    with pytest.raises(ConfigError, match="does not name 'other'"):
        import_arazzo(_changed(), sources={"other": "{}"})


@pytest.mark.hostile("expressions and configurations")
def test_an_input_that_refers_to_itself_is_refused():
    text = PETS.replace("tag: { type: string }", 'tag: { $ref: "#/components/inputs/tag" }')
    with pytest.raises(ConfigError, match="refers to itself"):
        import_arazzo(text, sources={"pets": API})


FLOWS = """
{
  "flow_url": "https://flow.example/v2",
  "basic_settings": { "name": "公司" },
  "flows": [
    {
      "flow_id": "leave", "name": "请假", "description": "d", "trigger_patterns": ["请假"], "response": "ok",
      "input_schema": { "type": "object", "properties": { "days": { "type": "integer" }, "why": {} } },
      "steps": [
        {
          "stepId": "check", "operation": "GET /users/{$context.userId}/balance?year=2026",
          "successCriteria": ["$response.body#/days >= $inputs.days"],
          "onFailure": [
            { "type": "goto", "stepId": "send", "criteria": ["$statusCode == 503"] },
            { "type": "retry", "retryAfter": 2, "retryLimit": 3 }
          ],
          "outputs": { "left": "$response.body#/days" }
        },
        {
          "stepId": "send",
          "operation": {
            "url": "https://hr.example/leave", "headers": { "Authorization": "Bearer env:HR_TOKEN" },
            "body": { "days": "{$inputs.days}", "text": "{$message}: {$inputs.why}", "keep": [1, true, null] }
          }
        },
        { "stepId": "tell", "workflowId": "tell", "parameters": { "id": "{$steps.send.outputs.result}" } }
      ]
    },
    {
      "flow_id": "tell", "endpoint": "POST /tell", "outputs": { "id": "$response.body#/id" },
      "input_schema": { "type": "object", "properties": { "id": {} } }
    },
    { "flow_id": "asks", "steps": [{ "stepId": "a", "ask": "?" }] },
    { "flow_id": "runs", "steps": [{ "stepId": "a", "workflowId": "asks" }] },
    { "flow_id": "default" },
    { "flow_id": "off", "enabled": false }
  ]
}
"""


PATIENT = """
{
  "flow_url": "https://flow.example",
  "flows": [
    {
      "flow_id": "pay", "name": "付款", "input_schema": { "properties": { "sum": { "type": "number" } } },
      "steps": [
        {
          "stepId": "pay", "description": "收款",
          "operation": {
            "url": "/pay", "body": { "sum": "{$inputs.sum}" }, "timeout_seconds": 2.5, "idempotent": true
          }
        },
        { "stepId": "tell", "workflowId": "note", "parameters": { "text": "收到" }, "timeout_seconds": 60 }
      ]
    },
    {
      "flow_id": "note", "endpoint": "PUT /note", "input_schema": { "properties": { "text": {} } }
    }
  ]
}
"""


def test_a_flow_with_another_kind_of_step_is_left_out_with_its_kind():
    kinds = {
        "say": "Hello!",
        "llm": {"prompt": "?"},
        "switch": [{"steps": [{"stepId": "b", "operation": "GET /b"}]}],
        "for_each": {"in": [1], "steps": [{"stepId": "b", "operation": "GET /b"}]},
    }
    flows = [{"flow_id": kind, "steps": [{"stepId": "a", kind: what}]} for kind, what in kinds.items()]
    made = export_arazzo(parse_flow_file(json.dumps({"flow_url": "https://a.example", "flows": flows})))
    assert made.left_out == tuple(
        f"{kind}: The step 'a' is neither a request nor another flow (kind {kind})." for kind in kinds
    )


def test_flows_become_a_document_that_others_can_read():
    made = export_arazzo(parse_flow_file(FLOWS))
    leave, tell = made.document["workflows"]
    check, send, run = leave["steps"]
    assert check["operationPath"] == "{$sourceDescriptions.api.url}#/paths/~1users~1{userId}~1balance/get"
    assert check["parameters"] == [
        {"name": "userId", "in": "path", "value": "$inputs.userId"},
        {"name": "year", "in": "query", "value": "2026"},
        {"name": "days", "in": "query", "value": "$inputs.days"},
        {"name": "why", "in": "query", "value": "$inputs.why"},
    ]
    assert check["onFailure"][0] == {
        "name": "check-onFailure-1",
        "type": "goto",
        "stepId": "send",
        "criteria": [{"condition": "$statusCode == 503"}],
    }
    assert send["parameters"] == [
        {"name": "Authorization", "in": "header", "value": "Bearer {$inputs.HR_TOKEN}"}
    ]
    assert send["requestBody"]["payload"] == {
        "days": "$inputs.days",
        "text": "{$inputs.message}: {$inputs.why}",
        "keep": [1, True, None],
    }
    assert run["parameters"] == [{"name": "id", "value": "$steps.send.outputs.result"}]
    assert set(leave["inputs"]["properties"]) == {"days", "why", "userId", "message", "HR_TOKEN"}
    assert tell["outputs"] == {"id": "$steps.request.outputs.id"}
    assert made.document["sourceDescriptions"] == [
        {"name": "api", "url": "api.openapi.json", "type": "openapi"},
        {"name": "api1", "url": "api1.openapi.json", "type": "openapi"},
    ]
    first, second = made.descriptions.values()
    assert first["servers"] == [{"url": "https://flow.example/v2"}]
    assert set(first["paths"]) == {"/users/{userId}/balance", "/tell"}
    assert list(second["paths"]) == ["/leave"]
    assert [line.partition(":")[0] for line in made.left_out] == ["asks", "default", "runs"]
    assert "env:" not in json.dumps(made.document)


def imported_again(made):
    sources = {
        each["name"]: json.dumps(made.descriptions[each["url"]])
        for each in made.document["sourceDescriptions"]
    }
    return import_arazzo(json.dumps(made.document), sources=sources)


def test_what_is_exported_can_be_imported():
    made = export_arazzo(parse_flow_file(FLOWS))
    again = parse_flow_file(imported_again(made).text())
    leave = again.file.flows[0]
    assert leave.trigger_patterns == ["请假"]
    assert (leave.name, leave.response) == ("请假", "ok")
    assert leave.steps[0].operation
    assert leave.steps[0].operation.url == "https://flow.example/v2/users/{$inputs.userId}/balance"
    assert leave.steps[0].outputs == {"left": "$response.body#/days"}
    assert leave.steps[1].operation
    assert leave.steps[1].operation.body == {
        "days": "{$inputs.days}",
        "text": "{$inputs.message}: {$inputs.why}",
        "keep": [1, True, None],
    }
    twice = export_arazzo(again)
    assert twice.left_out == ()
    assert twice.document["workflows"][0]["steps"][1] == made.document["workflows"][0]["steps"][1]


@pytest.mark.parametrize("text", [FLOWS, PATIENT, import_arazzo(COUPON, sources={"pets": API}).text()])
def test_what_is_imported_stays_the_same_however_often_it_goes_out_and_in(text):
    once = imported_again(export_arazzo(parse_flow_file(text)))
    made = export_arazzo(parse_flow_file(once.text()))
    twice = imported_again(made)
    assert twice.flows == once.flows
    again = export_arazzo(parse_flow_file(twice.text()))
    assert (again.document, again.descriptions) == (made.document, made.descriptions)


def test_how_long_a_step_may_take_needs_the_newer_version_and_the_rest_does_not():
    made = export_arazzo(parse_flow_file(PATIENT))
    assert made.document["arazzo"] == "1.1.0"
    (pay, tell), (_note,) = (workflow["steps"] for workflow in made.document["workflows"])
    assert (pay["timeout"], tell["timeout"]) == (2500, 60_000)
    pay, tell = imported_again(made).flows[0].steps
    assert pay.request().timeout_seconds == 2.5
    assert pay.request().idempotent is True
    assert tell.timeout_seconds == 60
    assert export_arazzo(parse_flow_file(FLOWS)).document["arazzo"] == "1.0.1"


def test_an_input_that_means_two_things_leaves_its_flow_out():
    made = export_arazzo(
        parse_flow_file(
            """{"flow_url": "https://a.example", "flows": [{
              "flow_id": "f", "input_schema": {"properties": {"tenantId": {}}},
              "endpoint": "GET /{$inputs.tenantId}/{$context.tenantId}"
            }]}"""
        )
    )
    assert made.left_out == ("f: 'tenantId' is the name of an input and of something else.",)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_KEYS = [
    "parameters",
    "requestBody",
    "successCriteria",
    "onSuccess",
    "onFailure",
    "outputs",
    "timeout",
    "stepId",
]


@pytest.mark.hostile("expressions and configurations")
@given(step=st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=3))
def test_any_step_is_read_or_refused(step):
    try:
        found = import_arazzo(_changed(**step))
    except ConfigError as error:
        refusal = error.message
    else:
        refusal = ""
        assert len(found.flows[0].steps) == 1
    assert not refusal or refusal.startswith("arazzo: ")


def test_what_is_said_of_the_answer_and_of_failures_comes_back() -> None:
    request = {
        "method": "POST",
        "url": "/y",
        "idempotent": True,
        "retries": 0,
        "failure": "{$response.body#/msg}",
    }
    ending = {"type": "end", "response": "够了"}
    look = {
        "stepId": "look",
        "operation": "GET /y",
        "outputs": {"note": "$response.body#/note?", "id": "$response.body#/id"},
        "onFailure": [ending],
    }
    file = {
        "flow_url": "https://api.example",
        "flows": [
            {"flow_id": "a", "endpoint": request, "response": "单号 {$response.body#/id}"},
            {"flow_id": "b", "steps": [look], "response": "{$steps.look.outputs.id}"},
        ],
    }
    exported = export_arazzo(parse_flow_file(json.dumps(file)))
    sources = {"api": json.dumps(exported.descriptions["api.openapi.json"])}
    imported = import_arazzo(json.dumps(exported.document), sources=sources)
    again = parse_flow_file(imported.text())  # what is read can be used as it is
    one, other = again.file.flows
    (step,) = one.steps
    assert step.operation is not None
    assert step.operation.failure == "{$response.body#/msg}"
    assert (step.operation.retries, step.operation.idempotent) == (0, True)
    assert [each.response for each in step.on_success] == ["单号 {$response.body#/id}"]
    (step,) = other.steps
    assert step.outputs == {"note": "$response.body#/note?", "id": "$response.body#/id"}
    assert [each.response for each in step.on_failure] == ["够了"]
    assert other.response == "{$steps.look.outputs.id}"


def _nested(times: int) -> object:
    value: object = "茶"
    for _ in range(times):
        value = [value]
    return value


@pytest.mark.hostile("expressions and configurations")
@pytest.mark.parametrize("times", [40, 300, 600, 900])
def test_a_body_that_is_nested_without_end_is_refused(times):
    with pytest.raises(ConfigError, match=r"nested too deeply|neither JSON nor YAML"):
        import_arazzo(_changed(requestBody={"payload": _nested(times)}))


@pytest.mark.hostile("expressions and configurations")
def test_references_that_multiply_are_refused_before_they_fill_the_memory():
    document = json.loads(_changed())
    shared = {
        f"a{level}": {f"p{each}": {"$ref": f"#/components/inputs/a{level + 1}"} for each in range(10)}
        for level in range(14)
    }
    document["components"] = {"inputs": {**shared, "a14": {"type": "string"}}}  # 10 ** 14 in full
    document["workflows"][0]["inputs"] = {"$ref": "#/components/inputs/a0"}
    with pytest.raises(ConfigError, match="more than 10,000 parts"):
        import_arazzo(json.dumps(document))
