"""Validation of a flow file beyond its models: its parts fit together, and all references resolve."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, TypeVar, cast

from loom_core.config_file import ConfigPath, ConfigProblem
from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.flow.config.step_validation import (
    NAME_INPUT,
    NO_SCHEMA,
    TemplateText,
    address_problems,
    endpoint_problems,
    endpoint_texts,
    input_names,
    reference_problems,
    secret_problems,
    step_problems,
    step_texts,
    texts_in,
    unknown_name,
    unreadable_problem,
    walk_steps,
)
from loom_core.flow.triggers.matcher import check_pattern
from loom_core.flow.understanding.choices import choices_of, properties_of
from loom_core.flow.understanding.slots import fits
from loom_core.knowledge.text.scripts import normalise
from loom_core.net.policy import NetPolicy
from loom_core.tools.schemas.form import schema_problem

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig, FlowFile
    from loom_core.flow.config.models_step import AskConfig, LLMConfig, StepConfig
    from loom_core.flow.config.step_validation import PlacedStep
    from loom_core.llm.config import ProviderConfig

__all__ = [
    "DESCRIBE_TOOL",
    "SERVER_TOOLS",
    "ValidationContext",
    "file_problems",
    "flow_problems",
    "schema_problems",
    "steps_before",
]


_T = TypeVar("_T")
_SCRIPTED = "mock"  # for tests; its answers are given in `options`


def file_problems(file: FlowFile, *, tools: Collection[str] = ()) -> Iterator[ConfigProblem]:
    """Return the problems of a file; each names its flow, skill or tool.

    Args:
        file: the file.
        tools: names of available tools in addition to `system_tools`. A name with a colon is a tool of an MCP
            server and is not checked.
    """
    for problem in _all_problems(file, tools):
        match problem.path:
            case ("flows", int(index), *_):
                whose = f"flow {file.flows[index].flow_id!r}"
            case ("skills", int(index), *_):
                whose = f"skill {file.skills[index].id!r}"
            case ("system_tools", int(index), *_):
                whose = f"tool {file.system_tools[index].name!r}"
            case _:
                whose = ""
        yield replace(problem, message=f"{whose}: {problem.message}") if whose else problem


def _all_problems(file: FlowFile, tools: Collection[str]) -> Iterator[ConfigProblem]:
    flows = {flow.flow_id: flow for flow in file.flows if flow.enabled}
    known = {*tools, *(tool.name for tool in file.system_tools if tool.enabled)}
    around = ValidationContext(file, known, flows)
    yield from _model_problems(file)
    yield from _address_problems(file)
    yield from _net_problems(file)
    yield from _duplicate_problems(file.flows, lambda each: each.flow_id, ("flows",), "flow_id", "flow")
    yield from _duplicate_problems(
        file.system_tools, lambda each: each.name, ("system_tools",), "name", "tool"
    )
    yield from _duplicate_problems(file.skills, lambda each: each.id, ("skills",), "id", "skill")
    offered = [flow for flow in file.flows if flow.as_tool and flow.enabled]
    names = [flow.tool_name or flow.flow_id for flow in offered]
    for index, flow in enumerate(file.flows):
        path = ("flows", index)
        if not flow.enabled:
            continue
        yield from flow_problems(flow, path, around)
        if flow.as_tool and (flow.tool_name or flow.flow_id) in names[: offered.index(flow)]:
            yield ConfigProblem(
                (*path, "as_tool"), "another flow has a tool of this name.", "Write `tool_name`."
            )
    yield from _cycle_problems(file, flows)
    yield from _tool_problems(file)
    yield from _skill_problems(file, known)
    yield from secret_problems(texts_in(file.context, ("context",)))


def _model_problems(file: FlowFile) -> Iterator[ConfigProblem]:
    """Yield language models whose provider does not exist."""
    if file.model is None:
        return
    from loom_core.llm.factory import provider_choices  # vendors and plugins, only for a named one

    known = provider_choices()
    places: list[tuple[ConfigPath, ProviderConfig]] = [(("model",), file.model)]
    places += [(("model", "fallbacks", at), each) for at, each in enumerate(file.model.fallbacks)]
    for path, model in places:
        if model.provider not in {*known, _SCRIPTED}:
            start = "there is no provider of language models"
            yield unknown_name((*path, "provider"), start, model.provider, known, none="")


def _address_problems(file: FlowFile) -> Iterator[ConfigProblem]:
    url = file.flow_url
    if url and (not url.lower().startswith(("https://", "http://")) or any(each in url for each in "{#")):
        yield ConfigProblem(
            ("flow_url",),
            "this is not a base address for paths.",
            "Write an absolute address, without placeholders and without `#`: https://api.example/flows.",
        )
    if file.retrieve_knowledge_url is None:
        return
    if file.knowledge is not None:
        yield ConfigProblem(("knowledge",), "there is `retrieve_knowledge_url` already.", "Keep one of them.")
    knowledge, path = file.retrieve_knowledge_url, ("retrieve_knowledge_url",)
    yield from address_problems(knowledge.url, path, flow_url=url)
    texts = [
        TemplateText((*path, "url"), knowledge.url, "url"),
        *texts_in({**knowledge.headers}, (*path, "headers")),
        *texts_in(knowledge.parameters or {}, (*path, "parameters")),
    ]
    yield from reference_problems(texts, (), {})


def _net_problems(file: FlowFile) -> Iterator[ConfigProblem]:
    for index, rule in enumerate(file.net.allow):
        try:
            NetPolicy.allowing([rule])
        except ConfigError as error:
            yield ConfigProblem(("net", "allow", index), error.message, error.advice)
    for key, hosts in (("only", file.net.only), ("trace", file.net.trace)):
        for index, host in enumerate(hosts):
            if not host or any(each in host for each in "/:@ ?#") or "*" in host.removeprefix("*."):
                yield ConfigProblem(
                    ("net", key, index),
                    f"{host[:80]!r} is not a host name.",
                    "Write api.example or *.example.org.",
                )


def _duplicate_problems(
    parts: Sequence[_T], named: Callable[[_T], str], path: ConfigPath, key: str, what: str
) -> Iterator[ConfigProblem]:
    seen = set[str]()
    for index, part in enumerate(parts):
        name = named(part)
        if name in seen:
            yield ConfigProblem(
                (*path, index, key), f"there is another {what} {name[:80]!r}.", f"Give each {what} its own."
            )
        seen.add(name)


def _cycle_problems(file: FlowFile, flows: Mapping[str, FlowConfig]) -> Iterator[ConfigProblem]:
    """Yield flows that run themselves, directly or through other flows."""
    runs = {
        flow.flow_id: [placed.step.workflow_id for placed in walk_steps(flow.steps, ())]
        for flow in flows.values()
    }
    if cycle := _find_cycle({name: [each for each in run if each in flows] for name, run in runs.items()}):
        index = next(index for index, flow in enumerate(file.flows) if flow.flow_id == cycle[0])
        yield ConfigProblem(
            ("flows", index, "flow_id"),
            f"the flow runs itself: {' → '.join(cycle)}.",
            "Remove one `workflowId` from this cycle.",
        )


def _find_cycle(needed: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a cycle in a dependency graph, with its first node at both ends; empty if there is none."""
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as error:
        return list(reversed(cast("list[str]", error.args[1])))
    return []


def _tool_problems(file: FlowFile) -> Iterator[ConfigProblem]:
    for index, tool in enumerate(file.system_tools):
        if not tool.enabled:
            continue
        path = ("system_tools", index)
        yield from schema_problems(tool.parameters, (*path, "parameters"))
        yield from endpoint_problems(tool.endpoint, (*path, "endpoint"), flow_url=file.flow_url)
        texts = [*endpoint_texts(tool.endpoint, (*path, "endpoint"))]
        if isinstance(tool.confirm, str):
            texts.append(TemplateText((*path, "confirm"), tool.confirm))
        yield from reference_problems(texts, input_names(tool.parameters), {})


def _skill_problems(file: FlowFile, tools: Collection[str]) -> Iterator[ConfigProblem]:
    ids = {skill.id for skill in file.skills}
    for index, skill in enumerate(file.skills):
        path = ("skills", index)
        for number, name in enumerate(skill.tools):
            if skill.enabled and ":" not in name and name not in tools:
                at = (*path, "tools", number)
                yield unknown_name(at, "there is no tool", name, tools, none=DESCRIBE_TOOL)
        if skill.confirm:
            yield from reference_problems([TemplateText((*path, "confirm"), skill.confirm)], None, {})
        for key, named in (("depends_on", skill.depends_on), ("excludes", skill.excludes)):
            for number, other in enumerate(named):
                if other not in ids:
                    at = (*path, key, number)
                    yield unknown_name(at, "there is no skill", other, ids, none="Give one this `id`.")
                elif other == skill.id and key == "excludes":
                    yield ConfigProblem((*path, key, number), "that is the skill itself.", "Leave it out.")
        both = set(skill.depends_on) & set(skill.excludes)
        if both:
            yield ConfigProblem(
                (*path, "excludes"),
                f"it depends on {min(both)!r} and excludes it.",
                "Keep one of them.",
            )
    if cycle := _find_cycle(
        {skill.id: [each for each in skill.depends_on if each in ids] for skill in file.skills}
    ):
        index = next(index for index, skill in enumerate(file.skills) if skill.id == cycle[0])
        yield ConfigProblem(
            ("skills", index, "depends_on"),
            f"its dependencies form a cycle: {' → '.join(cycle)}.",
            "Remove one id from this cycle.",
        )


SERVER_TOOLS = frozenset({"flow_chat", "flow_run", "flow_list", "flow_explain", "flow_status", "flow_resume"})
"""Names of the server's own tools."""

DESCRIBE_TOOL = "Describe it in `system_tools`, or name a tool of an MCP server as server:tool."
"""Advice where no tool exists."""

_PATTERNS = "It is a regular expression; a literal special character needs a backslash before it: \\(."
_TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ANSWER = "answer"
_LABEL = "label"
_ANSWERS = frozenset({"body", "header", "statusCode"})
_RESULT = "result"
_OPERATOR = "operator"
_RESULTS = "results"


@dataclass(frozen=True, slots=True)
class ValidationContext:
    """A file, its enabled flows by id, and the names of tools that steps and skills may name."""

    file: FlowFile
    tools: Collection[str]
    flows: Mapping[str, FlowConfig]


def flow_problems(flow: FlowConfig, path: ConfigPath, around: ValidationContext) -> Iterator[ConfigProblem]:
    """Return the problems of a flow."""
    flow_url = around.file.flow_url
    yield from schema_problems(flow.input_schema, (*path, "input_schema"))
    if flow.endpoint is not None:
        if flow.steps:
            yield ConfigProblem(
                (*path, "endpoint"),
                "a flow is one request or several steps, not both.",
                "Make the request a step.",
            )
        yield from endpoint_problems(flow.endpoint, (*path, "endpoint"), flow_url=flow_url)
    elif not flow.steps:
        yield from address_problems("", path, flow_url=flow_url)
    placed = [*walk_steps(flow.steps, (*path, "steps"))]
    seen = set[str]()
    for each in placed:
        if each.step.step_id in seen:
            yield ConfigProblem(
                (*each.path, "stepId"),
                f"there is another step {each.step.step_id!r} in this flow.",
                "Give each step its own id.",
            )
        seen.add(each.step.step_id)
        yield from step_problems(each, flow_url=flow_url)
        yield from _step_reference_problems(each, around)
        yield from _ask_problems(each, input_names(flow.input_schema))
    inputs, outputs = _inputs(flow, placed), _outputs(placed, around.flows)
    before, loops = steps_before(flow.steps), {each.step.step_id: each.loops for each in placed}
    for each in placed:
        done = {*before[each.step.step_id], each.step.step_id}
        yield from reference_problems(
            step_texts(each),
            inputs,
            outputs,
            own=flow.outputs,
            before=done,
            loops=loops,
            inside=each.loops,
        )
    yield from reference_problems(_texts(flow, path), inputs, outputs, own=flow.outputs, loops=loops)
    if "steps" in flow.model_fields_set and not flow.steps:
        advice = "Write one, or leave `steps` out: then the request goes to `endpoint`, or to `flow_url`."
        yield ConfigProblem((*path, "steps"), "it has no steps.", advice)
    if flow.steps:
        yield from _answer_problems(_texts(flow, path))
    yield from _pattern_problems(flow, path)
    yield from _flow_tool_problems(flow, path)


def _answer_problems(texts: Iterator[TemplateText]) -> Iterator[ConfigProblem]:
    """Yield references to an answer in the final texts of a flow with steps, where none exists."""
    for text in texts:
        try:
            found = [each for each in text.expressions() if each.root in _ANSWERS]
        except UnreadableTextError:
            continue
        for each in found:
            yield ConfigProblem(
                text.path,
                f"{each.source} is empty here: a flow with steps has no response of its own.",
                "Name it as an output of a step, and write {$steps.<stepId>.outputs.<name>}.",
            )


def schema_problems(schema: Mapping[str, object], path: ConfigPath) -> Iterator[ConfigProblem]:
    """Return the problems of a JSON Schema of inputs."""
    if problem := schema_problem(schema):
        yield ConfigProblem(path, f"the schema {problem}.", "See json-schema.org.")
        return
    yield from _choice_problems(schema, path)
    names, required = input_names(schema), schema.get("required")
    if names is None or not isinstance(required, list):
        return
    for index, name in enumerate(cast("list[str]", required)):
        if name not in names:
            end, none = ", which is not a property.", "Name it in `properties`."
            at = (*path, "required", index)
            yield unknown_name(at, "`required` names", name, names, none=none, end=end)


def _choice_problems(schema: Mapping[str, object], path: ConfigPath) -> Iterator[ConfigProblem]:
    """Yield choices that no user can make: their names are equal, or the type does not allow them."""
    for name, about in properties_of(schema).items():
        key = next((each for each in ("oneOf", "anyOf") if each in about), "")
        seen: dict[str, object] = {}
        for index, choice in enumerate(choices_of(about) if key else ()):
            at = (*path, "properties", name, key, index)
            if not fits(choice.value, name, about):
                yield ConfigProblem(
                    at,
                    f"{choice.value!r} does not fit the schema of {name!r}.",
                    "Make it fit, or leave out `type`.",
                )
            for called in map(normalise, choice.names):
                if seen.setdefault(called, choice.value) != choice.value:
                    yield ConfigProblem(
                        at,
                        f"{choice.value!r} has the same name as {seen[called]!r}: {called!r}.",
                        "Give each a `title` of its own.",
                    )


def _texts(flow: FlowConfig, path: ConfigPath) -> Iterator[TemplateText]:
    """Yield the templates of a flow outside of its steps."""
    if flow.endpoint is not None:
        yield from endpoint_texts(flow.endpoint, (*path, "endpoint"))
    for name, expression in flow.outputs.items():
        yield TemplateText((*path, "outputs", name), expression, "expression")
    yield TemplateText((*path, "response"), flow.response)


def _inputs(flow: FlowConfig, placed: Sequence[PlacedStep]) -> Collection[str] | None:
    """Return the names of inputs: those of the schema, and those that steps ask for with their own schema."""
    names = input_names(flow.input_schema)
    if names is None:
        return None
    asked = (each.step.ask for each in placed if each.step.ask is not None)
    return names | {ask.into for ask in asked if ask.into and _has_own_schema(ask)}


def _has_own_schema(ask: AskConfig) -> bool:
    """Return whether a question says itself what its answer may be."""
    return ask.answer is not None or ask.options is not None


def _outputs(placed: Sequence[PlacedStep], flows: Mapping[str, FlowConfig]) -> dict[str, Collection[str]]:
    found: dict[str, Collection[str]] = {}
    for each in placed:
        step = each.step
        own = {_ANSWER} if step.kind in {"ask", "confirm"} else set[str]()
        if step.ask is not None and step.ask.options is not None:
            own.add(_LABEL)
        has_result = step.kind in {"operation", "tool", "workflow", "switch", "llm"}
        if has_result or (step.wait_for and step.wait_for.event):
            own = {_RESULT}
        if step.kind == "handover":
            own = {_RESULT, _OPERATOR}
        if step.for_each is not None:
            own = {_RESULTS}
        if step.workflow_id in flows:
            own |= flows[step.workflow_id].outputs.keys()
        found[step.step_id] = own | step.outputs.keys()
    return found


def _step_reference_problems(placed: PlacedStep, around: ValidationContext) -> Iterator[ConfigProblem]:
    """Yield references of a step to tools, flows and inputs that do not exist."""
    step, path = placed.step, placed.path
    if step.tool and ":" not in step.tool and step.tool not in around.tools:
        at = (*path, "tool")
        yield unknown_name(at, "there is no tool", step.tool, around.tools, none=DESCRIBE_TOOL)
    if step.ask is not None and step.ask.answer is not None:
        answer = {"type": "object", "properties": {_ANSWER: step.ask.answer}}
        yield from schema_problems(answer, (*path, "ask", "schema"))
    if step.handover is not None and step.handover.agreed is not None:
        yield from schema_problems(step.handover.agreed, (*path, "handover", "schema"))
    if step.llm is not None:
        yield from _llm_problems(step.llm, (*path, "llm"))
    if not step.workflow_id:
        return
    flow = around.flows.get(step.workflow_id)
    if flow is None:
        at = (*path, "workflowId")
        yield unknown_name(at, "there is no flow", step.workflow_id, around.flows, none="Write one.")
        return
    if placed.is_concurrent and _has_ask_step(flow.steps):
        yield ConfigProblem(
            (*path, "workflowId"),
            f"the flow {flow.flow_id!r} asks the user, which is not possible in parallel with other steps.",
            "Run it in a step before or after.",
        )
    names = input_names(flow.input_schema)
    for index, parameter in enumerate(step.parameters):
        if names is not None and parameter.name not in names:
            at, start = (*path, "parameters", index, "name"), f"the flow {flow.flow_id!r} has no input"
            yield unknown_name(at, start, parameter.name, names, none="Leave it out.")


def _llm_problems(llm: LLMConfig, path: ConfigPath) -> Iterator[ConfigProblem]:
    """Yield problems of what a model is to answer."""
    if llm.answer is not None:
        yield from schema_problems(llm.answer, (*path, "schema"))
        if llm.choices:
            yield ConfigProblem((*path, "choices"), "there is a schema already.", "Keep one of them.")
    if llm.choices and len({*llm.choices}) < max(len(llm.choices), 2):
        yield ConfigProblem((*path, "choices"), "there must be two or more, all different.")


def _ask_problems(placed: PlacedStep, inputs: Collection[str] | None) -> Iterator[ConfigProblem]:
    """Yield answers stored in an input that has no schema."""
    ask = placed.step.ask
    if ask is None or not ask.into or _has_own_schema(ask) or inputs is None or ask.into in inputs:
        return
    at, end = (*placed.path, "ask", "into"), ", which takes the answer."
    none = "Name it in `input_schema`, or give the question `schema` or `options`."
    yield unknown_name(at, NO_SCHEMA, ask.into, inputs, none=none, end=end)


def _has_ask_step(steps: Sequence[StepConfig]) -> bool:
    return any(each.step.kind in {"ask", "confirm", "handover"} for each in walk_steps(steps, ()))


def _pattern_problems(flow: FlowConfig, path: ConfigPath) -> Iterator[ConfigProblem]:
    names = input_names(flow.input_schema)
    for index, pattern in enumerate(flow.trigger_patterns):
        at = (*path, "trigger_patterns", index)
        try:
            groups = check_pattern(pattern)
        except UnreadableTextError as error:
            yield unreadable_problem(at, error, advice=_PATTERNS)
            continue
        for group in groups:
            if names is not None and group not in names:
                end = ", which a named group fills."
                yield unknown_name(at, NO_SCHEMA, group, names, none=NAME_INPUT, end=end)


def _flow_tool_problems(flow: FlowConfig, path: ConfigPath) -> Iterator[ConfigProblem]:
    if not flow.as_tool:
        return
    name, key = (flow.tool_name, "tool_name") if flow.tool_name else (flow.flow_id, "flow_id")
    if not _TOOL_NAME.fullmatch(name):
        yield ConfigProblem(
            (*path, key),
            f"a tool cannot have the name {name[:80]!r}.",
            "Write `tool_name`: a small letter, then small letters, digits and `_`, at most 40.",
        )
    elif name in SERVER_TOOLS:
        yield ConfigProblem((*path, key), f"the server has a tool {name!r} already.", "Write `tool_name`.")
    if not flow.description:
        yield ConfigProblem(
            (*path, "as_tool"),
            "a tool needs a description, so that a model can use it.",
            "Write `description`.",
        )


def steps_before(steps: Sequence[StepConfig]) -> Mapping[str, Collection[str]]:
    """Return for each step, by id, the ids of the steps that may precede it.

    A step may follow the one before it, and any step that leads to it by `goto` or `retry`. Steps inside
    another one follow the steps before it, and precede those after it; steps of different branches or cases
    do not.
    """
    leads: dict[str, set[str]] = {}
    _add_successors(steps, leads, on=())
    before: dict[str, set[str]] = {step: set() for step in leads}
    for start in leads:
        waiting = [*leads[start]]
        while waiting:
            step = waiting.pop()
            if step in before and start not in before[step]:
                before[step].add(start)
                waiting += leads[step]
    return before


def _add_successors(steps: Sequence[StepConfig], leads: dict[str, set[str]], *, on: Collection[str]) -> None:
    """Add the steps that can follow each step.

    `on` is the step after the last one.
    """
    for index, step in enumerate(steps):
        following = {steps[index + 1].step_id} if index + 1 < len(steps) else {*on}
        jumps = {action.step_id for action in (*step.on_success, *step.on_failure) if action.step_id}
        onward = following | jumps
        inside = [steps for _, steps in step.inner_lists() if steps]
        leads.setdefault(step.step_id, set()).update(onward | {steps[0].step_id for steps in inside})
        for steps_inside in inside:
            _add_successors(steps_inside, leads, on=onward)
