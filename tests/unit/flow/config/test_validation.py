"""Validation messages about parts of a flow file that do not fit each other."""

from __future__ import annotations

import json

import pytest

from loom_core.errors import ConfigError
from loom_core.flow.config import parse_flow_file

INPUTS = {"type": "object", "properties": {"天数": {"type": "integer"}, "id": {"type": "string"}}}


def refusal(file, **options):
    with pytest.raises(ConfigError) as raised:
        parse_flow_file(json.dumps(file, ensure_ascii=False), **options)
    return str(raised.value)


def flow(**keys):
    return {"flow_url": "https://api.example", "flows": [{"flow_id": "f", **keys}]}


def steps(*written, **keys):
    return flow(input_schema=INPUTS, steps=list(written), **keys)


STEP = {"stepId": "a", "operation": "GET /a"}


def each(items, inner=(STEP,), **more):
    return {"stepId": "e", "for_each": {"in": items, "steps": list(inner), **more}}


def test_a_place_is_line_and_column():
    text = (
        '{\n  "flow_url": "https://api.example",\n  "flows": [\n    {"flow_id": "f", "respnse": ""}\n  ]\n}'
    )
    with pytest.raises(ConfigError) as raised:
        parse_flow_file(text, name="公司.json")
    assert (
        raised.value.message == "公司.json:4:22: flows[0].respnse is not known here. Did you mean response?"
    )
    assert "docs/reference/flow-config.md" in raised.value.advice


@pytest.mark.parametrize(
    ("file", "said"),
    [
        # models, required inputs, answers, what is not done yet
        (flow(endpoint="GET /a") | {"model": "bogus"}, "no provider of language models 'bogus'. There are: "),
        (
            flow(endpoint="GET /a") | {"model": {"provider": "ollama", "fallbacks": ["deepseak"]}},
            "mean 'deepseek'?",
        ),
        (
            flow(endpoint="GET /a", input_schema={**INPUTS, "required": ["天", "id"]}),
            "`required` names '天', which is not a property. Did you mean '天数'?",
        ),
        (
            steps({"stepId": "a", "ask": {"question": "?", "into": "数"}}),
            "'数', which takes the answer. Did you mean",
        ),
        (
            steps({"stepId": "a", "ask": {"question": "?", "options": {"from": "$steps.b.outputs.x"}}}),
            "there is no step 'b'",
        ),
        (
            steps({"stepId": "a", "ask": {"question": "?", "options": {"from": "times"}}}),
            "options.from: expected $inputs",
        ),
        (
            steps({"stepId": "a", "ask": {"question": "?", "options": {"from": "$inputs.id", "label": "x"}}}),
            "'x' is not a JSON Pointer, such as /data/0/id",
        ),
        (
            steps(
                {
                    "stepId": "a",
                    "ask": {"question": "?", "schema": {"type": "string"}, "options": {"from": "$inputs.id"}},
                }
            ),
            "the choices are the schema of the answer. Leave `schema` out.",
        ),
        (
            steps({**STEP, "parameters": {"q": "{$steps.b.outputs.result}"}}, {**STEP, "stepId": "b"}),
            "flow 'f': the step 'b' does not come before this one, so it has no outputs yet. Refer to",
        ),
        # ids
        (flow(flow_id="a b"), "flows[0].flow_id: an id is 1 to 64 letters"),
        (flow(flow_id="a.b"), "an id is 1 to 64 letters"),
        (
            {"flow_url": "https://a.example", "flows": [{"flow_id": "f"}, {"flow_id": "f"}]},
            "another flow 'f'",
        ),
        (steps(STEP, STEP), "another step 'a' in this flow"),
        (
            steps(
                {
                    "stepId": "p",
                    "parallel": [[{"stepId": "x", "tool": "s:t"}], [{"stepId": "x", "tool": "s:t"}]],
                }
            ),
            "another step 'x' in this flow",
        ),
        (
            {
                "skills": [
                    {"id": "s", "condition": "c", "action": "a"},
                    {"id": "s", "condition": "c", "action": "a"},
                ]
            },
            "another skill 's'",
        ),
        # steps
        (steps({"stepId": "a", "operation": "GET /a", "tool": "x"}), "one thing, not operation and tool"),
        (steps({"stepId": "a"}), "the step does nothing"),
        (
            steps({**STEP, "onSuccess": [{"type": "goto", "stepId": "b"}]}),
            "there is no step 'b' in this list. There are: a.",
        ),
        (steps({**STEP, "onSuccess": [{"type": "goto"}]}), "it needs a step"),
        (steps({**STEP, "onSuccess": [{"type": "retry"}]}), "only a failed step is retried"),
        (steps({**STEP, "onFailure": [{"type": "retry", "stepId": "z"}]}), "there is no step 'z'"),
        (steps({**STEP, "onFailure": [{"type": "end", "stepId": "a"}]}), "`end` leads to no step"),
        (
            steps({**STEP, "onFailure": [{"type": "retry", "response": "x"}]}),
            "reads a response at the end of the flow only",
        ),
        (steps({"stepId": "p", "parallel": [[STEP]]}), "two or more lists"),
        (
            steps({"stepId": "p", "parallel": [[STEP], [{"stepId": "b", "ask": "wie?"}]]}),
            "the user cannot be asked in parallel with other steps",
        ),
        # cases
        (steps({"stepId": "p", "switch": [{"steps": []}]}), "switch[0].steps"),
        (steps({"stepId": "p", "switch": [{"when": [], "steps": [STEP]}]}), "switch[0].when"),
        (
            steps({"stepId": "p", "switch": [{"steps": [STEP]}, {"steps": [{**STEP, "stepId": "b"}]}]}),
            "flow 'f': a case without `when` is the default, and must be the last one",
        ),
        (
            steps({"stepId": "p", "switch": [{"when": "$inputs.天 > 1", "steps": [STEP]}]}),
            "no schema defines the input '天'. Did you mean '天数'?",
        ),
        (
            steps({"stepId": "p", "switch": [{"when": "$inputs.天数 >", "steps": [STEP]}]}),
            "switch[0].when[0].condition: ",
        ),
        (
            steps(
                {
                    "stepId": "p",
                    "switch": [
                        {"when": "$inputs.天数", "steps": [STEP]},
                        {
                            "steps": [
                                {**STEP, "stepId": "b", "parameters": {"q": "{$steps.a.outputs.result}"}}
                            ]
                        },
                    ],
                }
            ),
            "the step 'a' does not come before this one",
        ),
        (steps(STEP, {"stepId": "p", "switch": [{"steps": [STEP]}]}), "another step 'a' in this flow"),
        # models
        (steps({"stepId": "m", "llm": {"prompt": "{$inputs.天}"}}), "defines the input '天'. Did you mean"),
        (steps({"stepId": "m", "llm": {"prompt": "?", "choices": ["a"]}}), "two or more, all different"),
        (steps({"stepId": "m", "llm": {"prompt": "?", "choices": ["a", "a"]}}), "all different"),
        (
            steps({"stepId": "m", "llm": {"prompt": "?", "schema": {"type": "array"}}}),
            "flow 'f': the schema is of type 'array', not object",
        ),
        (
            steps(
                {"stepId": "m", "llm": {"prompt": "?", "schema": {"type": "object"}, "choices": ["a", "b"]}}
            ),
            "there is a schema already. Keep one of them",
        ),
        # items
        (steps(each("$inputs.id", [])), "for_each.steps"),
        (steps(each("items")), "for_each.in: expected $inputs"),
        (steps(each(["{$steps.b.outputs.result}"])), "there is no step 'b'"),
        (steps(each("$item")), "$item exists only in the steps of `for_each`"),
        (steps({**STEP, "parameters": {"q": "{$index}"}}), "$index exists only in the steps of `for_each`"),
        (steps(each("$inputs.id", limit=1001)), "limit"),
        (steps(each("$inputs.id"), {**STEP}), "another step 'a' in this flow"),
        (
            steps(
                each("$inputs.id"), {**STEP, "stepId": "b", "parameters": {"q": "{$steps.a.outputs.result}"}}
            ),
            "the step 'a' runs once for each item of 'e'. Its results are in $steps.e.outputs.results",
        ),
        (
            steps(each("$inputs.id"), outputs={"q": "$steps.a.outputs.result"}),
            "the step 'a' runs once for each item of 'e'",
        ),
        (
            steps(each("$inputs.id", [{"stepId": "a", "ask": "?"}], parallel=2)),
            "the user cannot be asked in parallel with other steps",
        ),
        (
            steps(each("$inputs.id", [{"stepId": "a", "ask": {"question": "?", "into": "id"}}])),
            "the answer about an item cannot become an input of the flow",
        ),
        (
            steps(
                {
                    "stepId": "p",
                    "switch": [{"steps": [{**STEP, "onSuccess": [{"type": "end", "response": "x"}]}]}],
                }
            ),
            "reads a response at the end of the flow only",
        ),
        (
            steps(
                {
                    "stepId": "p",
                    "parallel": [
                        [STEP],
                        [{**STEP, "stepId": "b", "onSuccess": [{"type": "goto", "stepId": "a"}]}],
                    ],
                }
            ),
            "there is no step 'a' in this list",
        ),
        (steps({"stepId": "a", "ask": "x?", "parameters": {"b": 1}}), "this step takes no parameters"),
        (steps({"stepId": "a", "ask": "x?", "requestBody": {"payload": 1}}), "only a request has a body"),
        (
            steps({"stepId": "a", "operation": {"url": "/a", "body": 1}, "requestBody": {"payload": 1}}),
            "has a body already",
        ),
        (
            steps({**STEP, "parameters": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]}),
            "defined twice",
        ),
        (
            steps({"stepId": "a", "tool": "s:t", "parameters": [{"name": "a", "in": "query", "value": 1}]}),
            "only parameters of a request have `in`",
        ),
        (flow(steps=[STEP], endpoint="GET /b"), "one request or several steps, not both"),
        # what is named
        (steps({"stepId": "a", "tool": "notfy"}), "there is no tool 'notfy'. Describe it in `system_tools`"),
        (steps({"stepId": "a", "workflowId": "g"}), "there is no flow 'g'. There are: f."),
        (
            {
                "flow_url": "https://a.example",
                "flows": [
                    {"flow_id": "f", "steps": [{"stepId": "a", "workflowId": "g", "parameters": {"day": 1}}]},
                    {"flow_id": "g", "input_schema": {"properties": {"days": {}}}},
                ],
            },
            "the flow 'g' has no input 'day'. Did you mean 'days'?",
        ),
        (
            {
                "flow_url": "https://a.example",
                "flows": [
                    {
                        "flow_id": "f",
                        "steps": [
                            {"stepId": "p", "parallel": [[STEP], [{"stepId": "b", "workflowId": "g"}]]}
                        ],
                    },
                    {"flow_id": "g", "steps": [{"stepId": "a", "confirm": "?"}]},
                ],
            },
            "the flow 'g' asks the user",
        ),
        (
            {"skills": [{"condition": "c", "action": "a", "tools": ["x"]}]},
            "flow.json:1:57: skill 'skill-1': there is no tool 'x'. Describe it in",
        ),
        ({"skills": [{"condition": "c", "action": "a", "depends_on": ["x"]}]}, "there is no skill 'x'"),
        (
            {"skills": [{"id": "s", "condition": "c", "action": "a", "excludes": ["s"]}]},
            "that is the skill itself",
        ),
        (
            {
                "skills": [
                    {"id": "s", "condition": "c", "action": "a", "excludes": ["t"], "depends_on": ["t"]},
                    {"id": "t", "condition": "c", "action": "a"},
                ]
            },
            "it depends on 't' and excludes it",
        ),
        (
            {
                "skills": [
                    {"id": "s", "condition": "c", "action": "a", "depends_on": ["t"]},
                    {"id": "t", "condition": "c", "action": "a", "depends_on": ["s"]},
                ]
            },
            "its dependencies form a cycle",
        ),
        # inputs and outputs
        (
            flow(endpoint="GET /{$inputs.day}"),
            "no schema defines the input 'day'. Name it in the `properties`",
        ),
        (steps({**STEP, "parameters": {"x": "{$inputs.天}"}}), "no schema defines the input '天'"),
        (steps({**STEP, "successCriteria": ["$inputs.ids == 1"]}), "Did you mean 'id'?"),
        (
            flow(input_schema=INPUTS, trigger_patterns=["请(?P<天>.)天假"]),
            "no schema defines the input '天', which a named group fills",
        ),
        (steps({**STEP, "outputs": {"x": "$steps.b.outputs.y"}}), "there is no step 'b'. There are: a."),
        (
            steps(STEP, response="{$steps.a.outputs.id}"),
            "the step 'a' has no output 'id'. There are: result.",
        ),
        (steps({"stepId": "a", "ask": "x?"}, response="{$steps.a.outputs.x}"), "There are: answer."),
        (flow(response="{$outputs.id}"), "the flow has no output 'id'"),
        (
            {
                "system_tools": [
                    {"name": "t", "description": "d", "endpoint": "GET https://a.example/{$inputs.a}"}
                ]
            },
            "no schema defines the input 'a'",
        ),
        # texts that cannot be read
        (flow(response="{$input.a}"), "expected $inputs"),
        (steps({**STEP, "outputs": {"x": "response"}}), "(character 1 of it)"),
        (steps({**STEP, "successCriteria": ["$statusCode = 200"]}), "character 13 of it"),
        (steps({**STEP, "successCriteria": [{"condition": "[", "type": "regex"}]}), "needs a context"),
        (
            steps(
                {
                    **STEP,
                    "successCriteria": [{"condition": "[", "type": "regex", "context": "$response.body"}],
                }
            ),
            "flow.json:1:",
        ),
        (
            steps(
                {
                    **STEP,
                    "onFailure": [
                        {
                            "type": "end",
                            "criteria": [
                                {"condition": "$[", "type": "jsonpath", "context": "$response.body"}
                            ],
                        }
                    ],
                }
            ),
            "flow.json:1:",
        ),
        (
            steps({**STEP, "successCriteria": [{"condition": "true", "context": "$response.body"}]}),
            "a condition has no separate context",
        ),
        (flow(trigger_patterns=["(a"]), "flow.json:1:"),
        (flow(input_schema={"type": "array"}), "the schema is of type 'array', not object"),
        (flow(input_schema={"properties": {"a": 1}}), "the schema has 1 where a schema belongs"),
        (
            steps({"stepId": "a", "ask": {"question": "?", "schema": {"type": "numbr"}}}),
            "the schema is wrong",
        ),
        # addresses
        ({"flows": [{"flow_id": "f"}]}, "the request goes to `flow_url`, which is not set"),
        ({"flows": [{"flow_id": "f", "endpoint": "GET /x"}]}, "the path '/x' is relative to `flow_url`"),
        ({"flow_url": "/api"}, "not a base address for paths"),
        ({"flow_url": "https://a.example/{$inputs.x}"}, "not a base address for paths"),
        (flow(endpoint="GET https://{$inputs.host}/"), "a host may not come from a placeholder"),
        (flow(endpoint="GET https://a.example{$inputs.host}/"), "a host may not come from a placeholder"),
        (flow(endpoint="GET ftp://a.example/"), "begins with https:// or http://"),
        (flow(endpoint="GET //a.example/"), "begins with https:// or http://"),
        (flow(endpoint="GET x/y"), "begins with https:// or http://"),
        (flow(endpoint="GET /a/../b"), "contains no . and .."),
        (flow(endpoint="GET https://a.example:x/"), "this is not an address"),
        (flow(endpoint="GET https:///x"), "the address has no host"),
        (flow(endpoint={"url": "/a\nb"}), "no blanks, backslashes or control characters"),
        (flow(endpoint="get /x"), "should be 'GET', 'HEAD'"),
        ({"retrieve_knowledge_url": "/kb"}, "the path '/kb' is relative to `flow_url`"),
        (
            {
                "retrieve_knowledge_url": "https://a.example",
                "knowledge": {"kind": "local", "knowledge_base": "notes"},
            },
            "there is `retrieve_knowledge_url` already",
        ),
        (
            {"retrieve_knowledge_url": {"url": "https://a.example", "parameters": {"q": "{$inputs.x}"}}},
            "no schema defines the input 'x'",
        ),
        ({"knowledge": {"kind": "lokal"}}, "does not match any of the expected tags"),
        ({"net": {"allow": ["10.0.0.0/99"]}}, "neither a host nor a network"),
        ({"net": {"only": ["https://a.example"]}}, "is not a host name"),
        ({"net": {"trace": ["a.*.example"]}}, "is not a host name"),
        # as_tool
        (flow(flow_id="请假", as_tool=True, description="d"), "a tool cannot have the name '请假'"),
        (
            flow(as_tool=True, description="d", tool_name="flow_chat"),
            "the server has a tool 'flow_chat' already",
        ),
        (flow(as_tool=True), "a tool needs a description"),
        (
            {
                "flow_url": "https://a.example",
                "flows": [
                    {"flow_id": "f", "as_tool": True, "description": "d"},
                    {"flow_id": "g", "as_tool": True, "description": "d", "tool_name": "f"},
                ],
            },
            "another flow has a tool of this name",
        ),
    ],
)
def test_what_does_not_fit_is_refused(file, said):
    assert said in refusal(file)


def test_flows_that_would_run_themselves_are_refused():
    def runs(flow_id, *others):
        return {
            "flow_id": flow_id,
            "steps": [{"stepId": f"s{number}", "workflowId": other} for number, other in enumerate(others)],
        }

    assert "the flow runs itself: f → f." in refusal({"flows": [runs("f", "f")]})
    said = refusal({"flows": [runs("a", "b", "c"), runs("b"), runs("c", "d"), runs("d", "a")][::-1]})
    assert "the flow runs itself:" in said
    assert " → " in said
    nested = [runs(f"f{number}", f"f{number + 1}") for number in range(2000)]
    parse_flow_file(json.dumps({"flow_url": "https://a.example", "flows": [*nested, {"flow_id": "f2000"}]}))


SECRET = "sk-0123456789abcdefABCDEF"


@pytest.mark.hostile("expressions and configurations")
@pytest.mark.parametrize(
    "file",
    [
        flow(endpoint={"url": "/x", "headers": {"Authorization": f"Bearer {SECRET}"}}),
        flow(endpoint={"url": "/x", "headers": {"X-Api-Key": SECRET}}),
        flow(endpoint={"url": "/x", "headers": {"X-Api-Key": f"{SECRET} {{$context.a}}"}}),
        flow(endpoint={"url": "/x", "headers": {"X": f"env:{SECRET}"}}),
        flow(endpoint={"url": "/x", "query": {"access_token": SECRET}}),
        flow(endpoint={"url": "/x", "query": {"a": f"keyring:{SECRET}"}}),
        flow(endpoint=f"GET https://user:{SECRET}@a.example/"),
        flow(endpoint=f"GET /x?api_key={SECRET}"),
        steps({**STEP, "parameters": [{"name": "Authorization", "in": "header", "value": SECRET}]}),
        steps({**STEP, "parameters": [{"name": "token", "in": "query", "value": SECRET}]}),
        {"model": {"provider": "deepseek", "api_key": SECRET}},
        {"retrieve_knowledge_url": {"url": "https://a.example", "headers": {"token": SECRET}}},
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(file):
    assert SECRET not in refusal(file)


@pytest.mark.hostile("expressions and configurations")
@pytest.mark.parametrize(
    "file",
    [
        flow(endpoint={"url": "/x", "body": {"a": ["env:TOKEN"]}}),
        steps({"stepId": "a", "operation": "POST /x", "requestBody": {"payload": "keyring:token"}}),
        steps({"stepId": "a", "tool": "s:t", "parameters": {"a": "env:TOKEN"}}),
        {"context": {"token": "env:TOKEN"}},
    ],
)
def test_a_reference_to_a_secret_where_none_is_looked_up_is_refused(file):
    assert "a secret is not resolved here" in refusal(file)


@pytest.mark.parametrize(
    "file",
    [
        flow(endpoint={"url": "/x", "headers": {"Authorization": "Bearer env:TOKEN", "X-Author": "loom"}}),
        flow(endpoint={"url": "/x", "headers": {"Authorization": "Bearer {$context.token}"}}),
        flow(endpoint={"url": "/x", "query": {"key": "keyring:maps", "keywords": "shoes", "标题": "x"}}),
        flow(endpoint="GET /x?keyword={$message}&token={$context.token}"),
        flow(input_schema={"type": "object", "additionalProperties": True}, endpoint="GET /{$inputs.any}"),
        flow(
            input_schema={"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}},
            response="{$inputs.a}",
        ),
        flow(input_schema={"allOf": [{"properties": {"a": {}}}]}, response="{$inputs.a}"),
        steps(
            {"stepId": "a", "ask": {"question": "?", "into": "新", "schema": {"type": "string"}}},
            response="{$inputs.新}",
        ),
        steps({"stepId": "a", "tool": "server:tool"}),
        steps({"stepId": "a", "tool": "known"}),
        steps({"stepId": "a", "successCriteria": ["$inputs.天数 > 3"], "onFailure": [{"type": "end"}]}),
        steps(
            {
                "stepId": "p",
                "parallel": [[{**STEP, "onFailure": [{"type": "end"}]}], [{**STEP, "stepId": "b"}]],
            }
        ),
        steps(
            {**STEP, "onFailure": [{"type": "retry", "stepId": "b"}]},
            {"stepId": "b", "operation": "POST /login"},
        ),
        {"flows": [{"flow_id": "f", "enabled": False, "endpoint": "GET /{$inputs.day}"}]},
        {"net": {"allow": ["10.0.0.0/8", "a.corp", "[fd00::1]"], "only": ["*.example.org", "公司.example"]}},
        {"knowledge": {"kind": "documents", "documents": [{"text": "公司九点上班。"}]}},
        {"knowledge": {"kind": "http", "url": "https://a.example/kb", "fields": {"token": "env:KB"}}},
        {"knowledge": {"kind": "mcp", "server": "tracker"}},
    ],
)
def test_what_fits_is_read(file):
    parse_flow_file(json.dumps(file, ensure_ascii=False), tools=["known"])


def test_a_flow_of_steps_says_nothing_of_an_answer_that_it_does_not_have():
    said = refusal(steps(STEP, response="单号 {$response.body#/id}"))
    assert "flow 'f'" in said
    assert "$response.body#/id is empty here" in said
    assert "is empty here" in refusal(steps(STEP, outputs={"code": "$statusCode"}))
    parse_flow_file(json.dumps(flow(endpoint="GET /a", response="单号 {$response.body#/id}")))
    end = {"type": "end", "response": "{$response.body#/id}"}
    parse_flow_file(json.dumps(steps({**STEP, "onSuccess": [end]})))


def test_a_list_of_steps_without_any_is_refused():
    assert "it has no steps" in refusal(flow(steps=[]))


def test_an_output_may_be_said_to_be_optional():
    parse_flow_file(json.dumps(steps({**STEP, "outputs": {"note": "$response.body#/note?"}})))
    assert "nothing is allowed after" in refusal(steps({**STEP, "outputs": {"note": "$statusCode??"}}))
