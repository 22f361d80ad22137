"""`loom-flow-server doctor`: checks of the installation, the flow file and the runs."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from loom_core.errors import ConfigError, LoomError
from loom_core.flow.config import LoadedFlows, flow_file_problems, flow_file_warnings, read_flow_file
from loom_core.flow.config.models_step import iter_steps
from loom_core.flow.executor.definition import server_tools
from loom_core.server.cli.health import HealthSection, fine, problem, problem_from_error, warning
from loom_core.server.doctor.check_runner import Check, blocking
from loom_core.server.doctor.language_model import language_model_variables
from loom_core.server.doctor.runs import runs_section
from loom_flow import PROGRAM
from loom_flow.engine import build_model, choose_model
from loom_flow.settings import invocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loom_core.flow.config import EndpointConfig, FlowFile
    from loom_core.server.cli.health import Finding
    from loom_flow.settings import Settings

__all__ = ["own_checks", "variables"]

_CONNECT_SECONDS = 3.0
_DEFAULT_PORTS = {"http": 80, "https": 443}
_KEYRING_SECONDS = 15.0  # a keyring may ask the user
_CORRECT = "Correct it there."


def own_checks(settings: Settings) -> list[Check]:
    """Return the checks of this server, in addition to the general ones."""
    return [
        Check("flows", blocking(partial(_flows, settings)), seconds=_KEYRING_SECONDS),
        Check("language model", blocking(partial(_model, settings)), seconds=_KEYRING_SECONDS),
        Check("network", partial(_network, settings), seconds=_KEYRING_SECONDS),
        Check("tools", blocking(partial(_tools, settings)), seconds=_KEYRING_SECONDS),
        Check("runs", partial(_runs, settings), seconds=_KEYRING_SECONDS),
    ]


def _load_flows(settings: Settings) -> LoadedFlows | None:
    """Return the flow file; None if it does not exist or is invalid, which another check reports."""
    try:
        return read_flow_file(settings.config)
    except ConfigError:
        return None


def variables(settings: Settings) -> set[str]:
    """Return the environment variables that may hold API keys."""
    usual = language_model_variables()
    loaded = _load_flows(settings)
    return usual | {*(loaded.variables if loaded else ())}


def _flows(settings: Settings) -> HealthSection:
    facts: dict[str, object] = {"file": str(settings.config)}
    if not settings.config.exists():
        write = f"Write one to begin with: {invocation(settings, 'init')}"
        finding = problem("no-flow-file", f"There is no {settings.config}.", write)
        return HealthSection(name="flows", facts=facts, findings=[finding])
    if problems := flow_file_problems(settings.config):
        found = [problem("flow-file-wrong", each.text, each.advice or _CORRECT) for each in problems]
        return HealthSection(name="flows", facts=facts, findings=found)
    file = read_flow_file(settings.config).file
    flows = [flow for flow in file.flows if flow.enabled]
    facts["flows"] = [flow.flow_id for flow in flows]
    findings = [
        warning("not-on-this-machine", each.text, each.advice)
        for each in flow_file_warnings(settings.config, has_model=bool(settings.provider))
    ]
    model = choose_model(file, settings) if settings.provider else file.model
    for flow in flows:
        if not flow.trigger_patterns and model is None:
            what = f"The flow {flow.flow_id!r} has no trigger pattern, so only its id starts it."
            remedy = "Write `trigger_patterns`, or name a `model`."
            findings.append(warning("flow-without-trigger", what, remedy))
    if any(skill.enabled for skill in file.skills) and model is None:
        findings.append(warning("skills-without-model", "Skills need a model.", "Name a `model`."))
    if find_spec("re2") is None:
        what = "google-re2 is not installed: patterns are matched one after the other."
        findings.append(warning("no-linear-matcher", what, "Install it if your platform has a wheel."))
    if not findings:
        findings.append(fine("flows", "The file is valid."))
    return HealthSection(name="flows", facts=facts, findings=findings)


def _model(settings: Settings) -> HealthSection | None:
    loaded = _load_flows(settings)
    if loaded is None:
        return None
    try:
        config = choose_model(loaded.file, settings)
        if config is None:
            return HealthSection(name="language model", facts={"model": "none: rules decide alone"})
        llm = build_model(config)
    except ConfigError as error:
        found = problem_from_error(error, "model-unusable", remedy=_CORRECT)
        return HealthSection(name="language model", findings=[found])
    finding = fine("model", f"{llm.name}/{llm.model} is available.".replace("/ ", " "))
    return HealthSection(name="language model", findings=[finding])


async def _network(settings: Settings) -> HealthSection | None:
    """Check whether each address of the file is allowed and accepts connections; nothing is sent."""
    from loom_core.flow.http import EndpointCaller
    from loom_core.flow.http.request import resolve_url

    loaded = _load_flows(settings)
    if loaded is None:
        return None
    findings: list[Finding] = []
    places: dict[tuple[str, int], str] = {}
    async with EndpointCaller(loaded.file) as caller:
        for who, endpoint in _endpoints(loaded.file):
            try:
                caller.check(endpoint)
            except LoomError as error:
                findings.append(problem("host-refused", f"{who}: {error.message}", error.advice or _CORRECT))
            else:
                places.setdefault(_place(resolve_url(endpoint.url, loaded.file.flow_url)), who)
    findings += await _find_unreachable(places)
    return HealthSection(name="network", findings=findings) if findings else None


def _tools(settings: Settings) -> HealthSection | None:
    """Check for tools of MCP servers that the file names and no operator has approved."""
    from loom_core.mcp_client.configuration.servers import read_servers
    from loom_core.mcp_client.configuration.trust import ToolPins
    from loom_core.mcp_client.tools.pins import Approvals

    loaded = _load_flows(settings)
    tools = server_tools(loaded.file) if loaded is not None else []
    if loaded is None or not tools:
        return None
    servers = dict.fromkeys(name.partition(":")[0] for name in tools)
    ready = read_servers(settings.home, names=list(servers)).ready
    trusted = {server.name for server in ready if server.trusted}
    unasked = {each for each in server_tools(loaded.file, unasked=True) if each.partition(":")[0] in trusted}
    approvals, pins = Approvals(settings.home), ToolPins(settings.home)
    findings: list[Finding] = []
    for name in tools:
        server, _, tool = name.partition(":")
        if name not in unasked and pins.find(server, tool) is None:
            what = f"The file names the tool {name}, which no operator has approved: flows cannot call it."
            remedy = f"Review and approve it: {approvals.command(name)}."
            findings.append(warning("tool-not-approved", what, remedy))
    return HealthSection(name="tools", facts={"tools": tools}, findings=findings)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]


async def _find_unreachable(places: Mapping[tuple[str, int], str]) -> list[Finding]:
    """Return a finding for each place that accepts no connection."""
    found: list[Finding] = []

    async def look(place: tuple[str, int], who: str) -> None:
        try:
            with anyio.fail_after(_CONNECT_SECONDS):
                await (await anyio.connect_tcp(*place)).aclose()
        except (OSError, TimeoutError):
            what = f"{who}: {place[0]}:{place[1]} accepts no connection."
            found.append(warning("host-silent", what, "Start the server, or correct the address."))

    async with anyio.create_task_group() as tasks:
        for place, who in places.items():
            tasks.start_soon(look, place, who)
    return found


def _endpoints(file: FlowFile) -> Iterator[tuple[str, EndpointConfig]]:
    for flow in file.flows:
        if not flow.enabled:
            continue
        if not flow.steps:
            yield f"The flow {flow.flow_id!r}", file.endpoint_of(flow)
        for step in iter_steps(flow.steps):
            if step.operation is not None:
                yield f"The step {step.step_id!r} of {flow.flow_id!r}", step.request()
    for tool in file.system_tools:
        if tool.enabled:
            yield f"The tool {tool.name!r}", tool.endpoint


async def _runs(settings: Settings) -> HealthSection | None:
    return await runs_section(settings.journal, see=f"{PROGRAM} status", drive=f"{PROGRAM} resume")
