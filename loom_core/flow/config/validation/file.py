"""What a model alone cannot say of a flow file: whether its parts fit each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, TypeVar, cast

from loom_core.config_file import ConfigPath, ConfigProblem
from loom_core.errors import ConfigError
from loom_core.flow.config.input_names import input_names
from loom_core.flow.config.references import Text, missing, reference_problems, texts_in
from loom_core.flow.config.validation.endpoint import (
    address_problems,
    endpoint_problems,
    endpoint_texts,
    secret_problems,
)
from loom_core.flow.config.validation.flow import (
    DESCRIBE_TOOL,
    Surroundings,
    flow_problems,
    schema_problems,
)
from loom_core.flow.config.validation.step import placed_steps
from loom_core.net.policy import NetPolicy

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig, FlowFile
    from loom_core.llm.config import ProviderConfig

__all__ = ["file_problems"]

_T = TypeVar("_T")
_SCRIPTED = "mock"  # for tests; it is given its answers under `options`


def file_problems(file: FlowFile, *, tools: Collection[str] = ()) -> Iterator[ConfigProblem]:
    """What is wrong with a file; what is wrong with a flow, skill or tool names it.

    Args:
        file: the file.
        tools: names of tools that there are besides `system_tools`. One with a colon is a tool of an MCP
            server, and is not looked for.
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
    around = Surroundings(file, known, flows)
    yield from _model_problems(file)
    yield from _address_problems(file)
    yield from _net_problems(file)
    yield from _twice(file.flows, lambda each: each.flow_id, ("flows",), "flow_id", "flow")
    yield from _twice(file.system_tools, lambda each: each.name, ("system_tools",), "name", "tool")
    yield from _twice(file.skills, lambda each: each.id, ("skills",), "id", "skill")
    offered = [flow for flow in file.flows if flow.as_tool and flow.enabled]
    names = [flow.tool_name or flow.flow_id for flow in offered]
    for index, flow in enumerate(file.flows):
        path = ("flows", index)
        if not flow.enabled:
            continue
        yield from flow_problems(flow, path, around)
        if flow.as_tool and (flow.tool_name or flow.flow_id) in names[: offered.index(flow)]:
            yield ConfigProblem(
                (*path, "as_tool"), "another flow is offered as a tool of this name.", "Write `tool_name`."
            )
    yield from _cycle_problems(file, flows)
    yield from _tool_problems(file)
    yield from _skill_problems(file, known)
    yield from secret_problems(texts_in(file.context, ("context",)))


def _model_problems(file: FlowFile) -> Iterator[ConfigProblem]:
    """Language models of a provider that there is not."""
    if file.model is None:
        return
    from loom_core.llm.factory import provider_choices  # vendors and plugins, where one is named only

    known = provider_choices()
    places: list[tuple[ConfigPath, ProviderConfig]] = [(("model",), file.model)]
    places += [(("model", "fallbacks", at), each) for at, each in enumerate(file.model.fallbacks)]
    for path, model in places:
        if model.provider not in {*known, _SCRIPTED}:
            yield ConfigProblem(
                (*path, "provider"),
                f"there is no provider of language models {model.provider[:80]!r}.",
                missing(model.provider, known, none=""),
            )


def _address_problems(file: FlowFile) -> Iterator[ConfigProblem]:
    url = file.flow_url
    if url and (not url.lower().startswith(("https://", "http://")) or any(each in url for each in "{#")):
        yield ConfigProblem(
            ("flow_url",),
            "this is no address that paths can be put behind.",
            "Write it whole, without placeholders and without `#`: https://api.example/flows.",
        )
    if file.retrieve_knowledge_url is None:
        return
    if file.knowledge is not None:
        yield ConfigProblem(
            ("knowledge",), "there is `retrieve_knowledge_url` already.", "Keep the one or the other."
        )
    knowledge, path = file.retrieve_knowledge_url, ("retrieve_knowledge_url",)
    yield from address_problems(knowledge.url, path, flow_url=url)
    texts = [
        Text((*path, "url"), knowledge.url, "url"),
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
                    ("net", key, index), f"{host[:80]!r} is no host.", "Write api.example or *.example.org."
                )


def _twice(
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
    """Flows that would run themselves, directly or by way of others."""
    runs = {
        flow.flow_id: [placed.step.workflow_id for placed in placed_steps(flow.steps, ())]
        for flow in flows.values()
    }
    if cycle := _cycle({name: [each for each in run if each in flows] for name, run in runs.items()}):
        index = next(index for index, flow in enumerate(file.flows) if flow.flow_id == cycle[0])
        yield ConfigProblem(
            ("flows", index, "flow_id"),
            f"the flow would run itself: {' → '.join(cycle)}.",
            "Take one `workflowId` out of this circle.",
        )


def _cycle(needed: Mapping[str, Sequence[str]]) -> list[str]:
    """A circle in what needs what, its first part at both ends; empty if there is none."""
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
            texts.append(Text((*path, "confirm"), tool.confirm))
        yield from reference_problems(texts, input_names(tool.parameters), {})


def _skill_problems(file: FlowFile, tools: Collection[str]) -> Iterator[ConfigProblem]:
    ids = {skill.id for skill in file.skills}
    for index, skill in enumerate(file.skills):
        path = ("skills", index)
        for number, name in enumerate(skill.tools):
            if skill.enabled and ":" not in name and name not in tools:
                yield ConfigProblem(
                    (*path, "tools", number),
                    f"there is no tool {name[:80]!r}.",
                    missing(name, tools, none=DESCRIBE_TOOL),
                )
        if skill.confirm:
            yield from reference_problems([Text((*path, "confirm"), skill.confirm)], None, {})
        for key, named in (("depends_on", skill.depends_on), ("excludes", skill.excludes)):
            for number, other in enumerate(named):
                if other not in ids:
                    yield ConfigProblem(
                        (*path, key, number),
                        f"there is no skill {other[:80]!r}.",
                        missing(other, ids, none="Give one this `id`."),
                    )
                elif other == skill.id and key == "excludes":
                    yield ConfigProblem((*path, key, number), "that is the skill itself.", "Leave it out.")
        both = set(skill.depends_on) & set(skill.excludes)
        if both:
            yield ConfigProblem(
                (*path, "excludes"),
                f"it depends on {min(both)!r} and excludes it.",
                "Keep the one or the other.",
            )
    if cycle := _cycle(
        {skill.id: [each for each in skill.depends_on if each in ids] for skill in file.skills}
    ):
        index = next(index for index, skill in enumerate(file.skills) if skill.id == cycle[0])
        yield ConfigProblem(
            ("skills", index, "depends_on"),
            f"what it depends on depends on it: {' → '.join(cycle)}.",
            "Take one id out of this circle.",
        )
