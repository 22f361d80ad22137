"""The server put to the test: started as a host starts it, in both protocol eras."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from loom_core.server.cli.health import Finding, Section, fine, problem, warning
from loom_core.server.doctor.stdio_probe import ServerProbe, probe_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SELF_TEST_SECONDS", "Patience", "self_test_section"]

SELF_TEST_SECONDS = 45.0
"""The longest that a self-test can take: one start that does not answer, or two slow ones and their ends."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long hosts wait for a server.

    Attributes:
        slow: seconds from its start to its tools that are no cause for concern.
        gives_up: seconds after which hosts give up; Claude Code does by default.
        again: seconds for the second start, by which time everything has been read once.
        ends: seconds from the end of its input to its own end.
    """

    slow: float = 10.0
    gives_up: float = 30.0
    again: float = 20.0
    ends: float = 4.0


# Claude Desktop refuses the whole server for one name that does not fit; Cursor and Claude Code cut or drop
# a tool whose name is too long together with the server's.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_TOGETHER = 60


async def self_test_section(
    command: Sequence[str], *, program: str, patience: Patience | None = None
) -> Section:
    """Start the server once for each era, and see it answer and end.

    No tool is called, so nothing is opened, locked or changed that the server does not open by itself at its
    start.

    Args:
        command: what a host would start, with its arguments.
        program: the name that hosts know the server by, such as `loom-kb`.
        patience: of hosts; what is usual if not given.
    """
    patience = patience or Patience()
    start = partial(probe_server, command, end_seconds=patience.ends)
    probes = [await start(era="handshake", seconds=patience.gives_up)]
    if not probes[0].failure and (probes[0].seconds or 0.0) <= patience.slow:  # else there is enough to tell
        probes.append(await start(era="modern", seconds=patience.again))
    facts = {"command": " ".join(command), **{f"{probe.era}_era": _described(probe) for probe in probes}}
    findings: dict[str, Finding] = {}
    for finding in (finding for probe in probes for finding in _findings(probe, program, patience)):
        findings.setdefault(finding.code, finding)  # what is wrong in both eras is told once
    if not any(probe.failure for probe in probes) and probes[0].tools != probes[-1].tools:
        message = "It has other tools in one protocol era than in the other."
        findings["eras-differ"] = problem("eras-differ", message, f"Report it as a bug of {program}.")
    told = list(findings.values()) or [fine("self-test", "It starts, answers in both eras, and ends well.")]
    return Section(name="self-test", facts=facts, findings=told)


def _described(probe: ServerProbe) -> str:
    if probe.seconds is None:
        return probe.failure
    ended = "did not end" if probe.end_seconds is None else f"ended {probe.end_seconds:.1f} s after its input"
    return f"{probe.server}: {len(probe.tools)} tools in {probe.seconds:.1f} s, {ended}"


def _findings(probe: ServerProbe, program: str, patience: Patience) -> Iterator[Finding]:
    report = f"Report it as a bug of {program}, with the first bytes."
    if probe.pollution:
        message = f"It writes on standard output what is not the protocol, first {_shown(probe.pollution)}."
        remedy = f"Find what prints, such as a wrapper script or a sitecustomize.py; or else: {report}"
        yield problem("stdout-polluted", message, remedy)
    if probe.failure:
        yield _failure(probe, program)
        return
    if probe.seconds is not None and probe.seconds > patience.slow:
        message = f"It took {probe.seconds:.1f} s to answer; hosts give up after {patience.gives_up:g} s."
        yield warning("slow-start", message, _faster(program))
    yield from _name_findings(probe, program)
    if probe.end_seconds is None:
        message = "It does not end when its input does, so that hosts leave it behind."
        yield problem(
            "stays", message, f"Look in its log for what holds it; report it as a bug of {program}."
        )
    elif probe.exit_code:
        message = f"It ended with exit code {probe.exit_code}{_said(probe)}."
        yield warning("ends-badly", message, f"Report it as a bug of {program}, with its log.")


def _shown(pollution: bytes) -> str:
    try:
        return repr(
            codecs.getincrementaldecoder("utf-8")().decode(pollution)
        )  # the last character may be cut
    except UnicodeDecodeError:
        return repr(pollution)[1:]


def _failure(probe: ServerProbe, program: str) -> Finding:
    if probe.exit_code is None and probe.failure.startswith("it did not answer"):
        message = f"In the {probe.era} era {probe.failure}; hosts do not wait longer{_said(probe)}."
        return problem("too-slow", message, _faster(program))
    ended = "" if probe.exit_code is None else f" (exit code {probe.exit_code})"
    message = f"In the {probe.era} era {probe.failure}{ended}{_said(probe)}."
    remedy = f"Run the command of this section by hand to see its log; then install {program} anew."
    return problem("does-not-serve", message, remedy)


def _faster(program: str) -> str:
    return (
        "Try again while the machine is less busy; where uvx fetches it at each start, install it: "
        f"uv tool install {program}; or raise the host's limit (Claude Code: MCP_TIMEOUT)."
    )


def _said(probe: ServerProbe) -> str:
    last = next((line.strip() for line in reversed(probe.log) if line.strip()), "")
    return f"; its log ends with {last[:200]!r}" if last else ""


def _name_findings(probe: ServerProbe, program: str) -> Iterator[Finding]:
    report = f"Report it as a bug of {program}."
    repeated = sorted(name for name, times in Counter(probe.tools).items() if times > 1)
    if repeated:
        message = f"Several of its tools have the same name: {', '.join(repeated)}."
        yield problem("duplicate-tools", message, report)
    misfits = [name for name in dict.fromkeys(probe.tools) if not _TOOL_NAME.fullmatch(name)]
    if misfits:
        message = f"Claude Desktop refuses the whole server for these names of tools: {', '.join(misfits)}."
        yield problem("tool-names", message, report)
    surplus = max(map(len, probe.tools), default=0) + len(program) - _LONGEST_TOGETHER
    if surplus > 0:
        message = (
            f"With {program!r} before it, as hosts have it, a tool's name is {surplus} characters too long."
        )
        remedy = "Give the server a shorter name in the host's configuration."
        yield warning("long-tool-names", message, remedy)
    if not probe.tools:
        yield problem("no-tools", "It has no tools.", report)
