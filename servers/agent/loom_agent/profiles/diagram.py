"""Mermaid flowchart of the profiles: members, and the tools and knowledge of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_agent.profiles.profile_config import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loom_agent.profiles.agent_file import AgentFile
    from loom_agent.profiles.profile_config import ProfileConfig

__all__ = ["render_mermaid"]

_MAX_LENGTH = 60


def render_mermaid(file: AgentFile, profile: str = "") -> str:
    """Render the profiles as a flowchart: solid arrows lead to members, dotted ones to tools and knowledge.

    Args:
        file: the configuration.
        profile: draw this profile and those below it only; empty for all.

    Raises:
        NotFoundError: there is no such profile.
    """
    names = file.list_team(profile) if profile else list(file.profiles)
    nodes = {name: f"p{number}" for number, name in enumerate(names)}
    lines = ["flowchart LR"]
    for name, node in nodes.items():
        lines.append(f"  {node}{_shape(name, file.profiles[name])}")
    for name, node in nodes.items():
        lines += _members(node, file.profiles[name], nodes)
    uses: dict[str, str] = {}
    for name, node in nodes.items():
        for text, (opening, closing) in _uses(file.profiles[name]):
            if text not in uses:
                uses[text] = f"u{len(uses)}"
                lines.append(f"  {uses[text]}{opening}{_quote(text)}{closing}")
            lines.append(f"  {node} -.-> {uses[text]}")
    return "\n".join(lines)


def _shape(name: str, profile: ProfileConfig) -> str:
    if profile.composition:
        return f"[[{_quote(f'{name}: {profile.composition}')}]]"
    model = "" if profile.model is None else f"{profile.model.provider}/{profile.model.model}".rstrip("/")
    return f"[{_quote(f'{name}: {model}' if model else name)}]"


def _members(node: str, profile: ProfileConfig, nodes: dict[str, str]) -> Iterator[str]:
    """Yield the arrows to the members of a profile, in its kind of composition."""
    for name in profile.agents:
        yield _arrow(node, nodes[name])
    for number, name in enumerate(profile.chain, start=1):
        yield _arrow(node, nodes[name], str(number))
    for name in profile.parallel:
        yield _arrow(node, nodes[name], "+")
    for name, after in profile.workflow.items():
        yield _arrow(node, nodes[name], f"after {', '.join(after)}" if after else "")
    if profile.router is not None:
        for name, route in profile.router.routes.items():
            label = route.when or ("else" if name == profile.router.default else "")
            yield _arrow(node, nodes[name], label)
    if profile.handoff is not None:
        yield _arrow(node, nodes[profile.handoff.members[0]], "starts")
        yield from _handoffs(profile.handoff.targets, nodes)


def _handoffs(targets: Mapping[str, Sequence[str]], nodes: Mapping[str, str]) -> Iterator[str]:
    """Yield the arrows between members that hand over, with two heads if both may hand over to the other."""
    drawn: set[tuple[str, str]] = set()
    for name, others in targets.items():
        for other in others:
            if (other, name) not in drawn:
                drawn.add((name, other))
                shaft = "<-->" if name in targets[other] else "-->"
                yield f"  {nodes[name]} {shaft}|{_quote('hands over')}| {nodes[other]}"


def _arrow(node: str, target: str, label: str = "") -> str:
    return f"  {node} -->{f'|{_quote(label)}|' if label else ''} {target}"


def _uses(profile: ProfileConfig) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the tools, MCP servers and knowledge bases of an agent, each with its shape."""
    if profile.composition:
        return
    tools = profile.tools
    if tools.files is not None:
        yield "files", ("([", "])")
    if tools.http is not None:
        yield "http", ("([", "])")
    if tools.shell is not None and tools.shell.enabled:
        yield "shell", ("([", "])")
    servers, bases = profile.mcp.servers, profile.knowledge
    for name in ["all MCP servers"] if servers == EVERYTHING else [f"MCP: {each}" for each in servers]:
        yield name, ("([", "])")
    for name in ["all knowledge bases"] if bases == EVERYTHING else [f"knowledge: {each}" for each in bases]:
        yield name, ("[(", ")]")


def _quote(text: str) -> str:
    """Quote a text on one line, shortened; characters with a meaning in Mermaid become references."""
    line = " ".join(text.split())
    shown = line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"
    return '"' + "".join(f"#{ord(each)};" if each in '"#;<>&`|' else each for each in shown) + '"'
