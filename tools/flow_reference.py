"""Writes docs/reference/flow-config.md: the keys of `flow.json`.

    python -m tools.reference flow

The page is made from the models in loom_core/flow/config; a test compares it with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from loom_core.flow.config.models import (
    BasicSettings,
    DocumentsSource,
    FlowConfig,
    FlowFile,
    HttpSource,
    KnowledgeEndpointConfig,
    LocalSource,
    McpSource,
    NetConfig,
    SkillConfig,
    SystemToolConfig,
)
from loom_core.flow.config.models_endpoint import Criterion, EndpointConfig
from loom_core.flow.config.models_step import (
    Action,
    AskConfig,
    CaseConfig,
    ConfirmConfig,
    ForEachConfig,
    HandoverConfig,
    LLMConfig,
    OptionsConfig,
    Parameter,
    RequestBody,
    StepConfig,
    WaitConfig,
)
from tools.provider_reference import settings, table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "flow-config.md"

_HEAD = """\
# Flows: `flow.json`

Made by `python -m tools.reference` from the code; do not edit.

JSON with comments and trailing commas. Errors are reported with file, line and column, and often with a
suggestion. If the file becomes invalid while a server runs, its last valid version stays in use. Unknown keys
are errors.

```jsonc
{
  "$schema": "./flow.schema.json",
  "flow_url": "https://flow-api.example",
  "retrieve_knowledge_url": "https://kb-api.example/retrieve",
  "model": "deepseek",
  "context": { "tenantId": "demo" },
  "flows": [
    {
      "flow_id": "order_status",
      "description": "Tells where an order is.",
      "trigger_patterns": ["order (?P<order_id>[A-Z]\\\\d+)", "订单(?P<order_id>[A-Z]\\\\d+)"],
      "input_schema": {
        "type": "object",
        "properties": { "order_id": { "type": "string", "description": "Number of the order" } },
        "required": ["order_id"],
      },
      "endpoint": {
        "method": "GET",
        "url": "/orders/{$inputs.order_id}",
        "headers": { "Authorization": "Bearer env:ORDERS_TOKEN", "X-Tenant": "{$context.tenantId}" },
        "failure": "{$response.body#/msg}",
      },
      "response": "{$response.body#/状态}",
    },
    {
      "flow_id": "请假",
      "trigger_patterns": ["请(?P<天数>\\\\d+)天假", "我要请假"],
      "input_schema": {
        "type": "object",
        "properties": { "天数": { "type": "integer", "minimum": 1 }, "原因": { "type": "string" } },
        "required": ["天数"],
      },
      "steps": [
        {
          "stepId": "余额",
          "operation": "GET /leave/balance",
          "outputs": { "剩余": "$response.body#/days" },
        },
        {
          "stepId": "确认",
          "confirm": "请 {$inputs.天数} 天假，还剩 {$steps.余额.outputs.剩余} 天。提交吗？",
          "onFailure": [{ "type": "end", "response": "好的，没有提交。" }],
        },
        {
          "stepId": "提交",
          "operation": "POST /leave",
          "idempotent": true,
          "successCriteria": ["$response.body#/code == 0"],
          "onFailure": [{ "type": "retry", "retryAfter": 2, "criteria": ["$statusCode == 503"] }],
        },
      ],
      "response": "已提交，单号 {$steps.提交.outputs.result#/id}。",
    },
  ],
  "skills": [
    {
      "condition": "The customer wants a demonstration.",
      "action": "Ask for name and company, then save them.",
      "tools": ["save_customer"],
    },
  ],
  "system_tools": [
    {
      "name": "save_customer",
      "description": "Saves a customer.",
      "parameters": {
        "type": "object",
        "properties": { "name": { "type": "string" }, "company": { "type": "string" } },
      },
      "endpoint": "POST /customers",
    },
  ],
}
```

## Expressions, templates, conditions

| expression | what it names |
| --- | --- |
| `$inputs.days`, `$inputs["any key"]` | an input of the flow; in a tool, an argument |
| `$steps.submit.outputs.id` | an output of a step that has been done |
| `$response.body#/data/0/id`, `$response.header.location`, `$statusCode` | the answer to the request |
| `$context.tenantId` | a variable of the conversation |
| `$message` | what the user has written |
| `$item`, `$item#/id`, `$item.id`, `$index` | in the steps of `for_each`: the item, and its number from 0 |
| `$outputs.id` | an output of the flow, in its `response` |

Keys may be of any script. In a **template**, expressions stand in braces: `单号 {$response.body#/id}`. A
value that is one expression keeps its type. In an address they are percent-encoded and stand behind the
host; `query`, `headers` and `body` are templates, too. A **condition** compares: `$statusCode == 200 &&
($response.body#/code == 0 || !$inputs.urgent)`.

## Secrets

A header or a query parameter may be `env:NAME` (an environment variable) or `keyring:NAME` (what `keyring
set loom NAME` has stored), also behind a word: `Bearer env:TOKEN`. It is looked up when the request is
made, and shown in no log, error, event or answer. Nowhere else does the file take secrets, and a key that
stands there itself is refused.

## What is checked

Besides what the tables say: ids that are there twice; tools, flows, steps, skills, inputs and outputs that
are referred to and are not there; flows that would run themselves; expressions, conditions, schemas and
patterns that cannot be read; patterns that might take long; addresses without a server; secrets in the
wrong place; names of tools that a client would not take. A tool whose name has a colon (`server:tool`) is
one of an MCP server, and is looked for when it is called.

## Arazzo

Steps are named as in Arazzo 1.1, of which HTTP requests and other workflows can be imported and exported.
Exporting makes OpenAPI descriptions, too; secrets, the message and variables of the conversation become
inputs. What Arazzo has no word for (patterns, the response…) is kept under `x-loom`. Flows with steps of
other kinds are left out, and it is said which.
"""

_SECTIONS: dict[str, type[BaseModel]] = {
    "The file": FlowFile,
    "`basic_settings`": BasicSettings,
    "A flow": FlowConfig,
    "A request": EndpointConfig,
    "A criterion": Criterion,
    "A step": StepConfig,
    "`parameters`": Parameter,
    "`requestBody`": RequestBody,
    "`onSuccess`, `onFailure`": Action,
    "A case of `switch`": CaseConfig,
    "`for_each`": ForEachConfig,
    "`llm`": LLMConfig,
    "`ask`": AskConfig,
    "`options`": OptionsConfig,
    "`confirm`": ConfirmConfig,
    "`wait_for`": WaitConfig,
    "`handover`": HandoverConfig,
    "A skill": SkillConfig,
    "A system tool": SystemToolConfig,
    "`retrieve_knowledge_url`": KnowledgeEndpointConfig,
    "`knowledge` of kind `local`": LocalSource,
    "`knowledge` of kind `http`": HttpSource,
    "`knowledge` of kind `mcp`": McpSource,
    "`knowledge` of kind `documents`": DocumentsSource,
    "`net`": NetConfig,
}


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for title, model in _SECTIONS.items():
        about = (getdoc(model) or "").replace("\n", " ").replace("  ", "\n\n")
        parts += [f"## {title}", about, table(_rows(model))]
    parts += ["`mapping` is as in [query.json](query-config.md), a model as in [providers.md](providers.md)."]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _rows(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    head, *rows = settings(model)
    yield head
    for (name, default, meaning), field in zip(rows, model.model_fields.values(), strict=True):
        choices = [each for each in _choices(field.annotation) if f"`{each}`" not in meaning]
        listed = f" One of: {', '.join(f'`{each}`' for each in choices)}." if choices else ""
        yield name, default, f"{meaning}{listed}".strip()


def _choices(kind: object) -> list[str]:
    """Return the texts that a value may be, where they are listed."""
    if get_origin(kind) is Literal:
        return [each for each in get_args(kind) if each]
    return [text for part in get_args(kind) if get_origin(part) is Literal for text in get_args(part)]


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
