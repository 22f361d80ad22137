"""What `doctor` looks at for any server."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from loom_core import TELEMETRY_SWITCHES
from loom_core.errors import RecordError
from loom_core.keys import redacted
from loom_core.paths import audit_path
from loom_core.redaction import hide_assigned, hide_forms, secrets_in_environment
from loom_core.server.cli.health import Finding, HealthReport, Section, fine, problem, told_by, warning
from loom_core.server.doctor.examination import Check, blocking, examine
from loom_core.server.doctor.hosts import hosts_section
from loom_core.server.doctor.keys import keys_section
from loom_core.server.doctor.port import port_section
from loom_core.server.doctor.program import program_section
from loom_core.server.doctor.self_test import SELF_TEST_SECONDS, self_test_section
from loom_core.server.install.launch import Interpreter, launch_of

__all__ = [
    "ExaminedServer",
    "audit_section",
    "common_checks",
    "examined",
    "home_section",
    "paste_safe",
    "telemetry_section",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedServer:
    """A server, for `doctor`.

    Attributes:
        program: its command, and the name of its distribution, such as `loom-kb`.
        module: the module behind the command, such as `loom_kb`.
        home: Loom's folder.
        port: where it would listen with `--http`.
        options: what `serve` is given in the self-test, so that it uses the same folder.
        variables: environment variables that may hold keys it uses.
    """

    program: str
    module: str
    home: Path
    port: int = 8765
    options: Sequence[str] = ()
    variables: Iterable[str] = ()


def common_checks(server: ExaminedServer) -> list[Check]:
    """The checks of any server, in the order in which people read them; its own come behind."""

    async def self_test() -> Section:
        launch = launch_of(server.program, server.module, interpreter=Interpreter.this())
        command = [launch.command, *launch.arguments, "serve", *server.options]
        return await self_test_section(command, program=server.program)

    return [
        Check("program", blocking(partial(program_section, server.program))),
        Check("home", blocking(partial(home_section, server.home))),
        Check("audit", blocking(partial(audit_section, server.home))),
        Check("keys", blocking(partial(keys_section, server.variables))),
        Check("telemetry", blocking(telemetry_section)),
        Check("port", blocking(partial(port_section, "127.0.0.1", server.port, program=server.program))),
        Check("clients", blocking(partial(hosts_section, server.program, server.module))),
        Check("self-test", self_test, seconds=SELF_TEST_SECONDS),
    ]


async def examined(checks: Sequence[Check], *, program: str, version: str) -> HealthReport:
    """Run checks, as `examine` does; the report is one that people can paste into an issue."""
    return paste_safe(await examine(checks, program=program, version=version))


def audit_section(home: Path) -> Section:
    """Look at the audit of all servers. Blocks, and writes nothing.

    Args:
        home: Loom's folder.
    """
    from loom_core.server.cli.audit_command import unkept_told
    from loom_core.tools.auditing.report import verify

    path = audit_path(home)
    try:
        report = verify(path)
    except RecordError as error:
        remedy = "Let this user read it."
        return Section(name="audit", findings=[told_by(error, "audit-unreadable", remedy=remedy)])
    facts = {"file": str(path), "lines": report.lines, "head": report.head[:12] or None}
    if report.problem:
        message = f"It is not as it was written: {report.problem}"
        remedy = "Find out who changed it; put all files of its folder away together, and a new one is begun."
        return Section(name="audit", facts=facts, findings=[problem("audit-broken", message, remedy)])
    findings = [fine("audit", "Its chain is whole." if report.lines else "Nothing is on it yet.")]
    if report.torn:
        message = f"{report.torn:,} lines were cut off when a process died."
        findings.append(warning("audit-torn", message, "Nothing has to be done."))
    if report.unkept:
        remedy = "See who has written them, with `audit show`."
        findings.append(warning("audit-unkept", unkept_told(report.unkept), remedy))
    return Section(name="audit", facts=facts, findings=findings)


_LITTLE_DISK = 500 << 20  # bytes; an ingest that fills the disk stops there


def home_section(home: Path, *, needed: int = _LITTLE_DISK) -> Section:
    """Look at the folder, or at what it would be made in. Blocks, and writes nothing.

    Args:
        home: Loom's folder, which need not exist.
        needed: bytes that have to be free.
    """
    nearest = next(path for path in (home, *home.parents) if _exists(path))
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    free = shutil.disk_usage(nearest).free
    facts = {"folder": str(home), "exists": _exists(home), "writable": writable, "free_MiB": free >> 20}
    return Section(name="home", facts=facts, findings=_findings(nearest, writable, free, needed))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # of a folder that this user may not look into
        return False


def _findings(nearest: Path, writable: bool, free: int, needed: int) -> list[Finding]:
    findings: list[Finding] = []
    if not nearest.is_dir():
        message = f"{nearest} is a file where a folder has to be."
        findings.append(problem("home-unwritable", message, "Move it away, or choose another with --home."))
    elif not writable:
        message = f"Nothing can be kept there: this user may not write to {nearest}."
        remedy = "Make it writable for this user, or choose another folder with --home or LOOM_HOME."
        findings.append(problem("home-unwritable", message, remedy))
    if free < needed:
        message = f"Only {free >> 20:,} MiB are free on its disk, and {needed >> 20:,} should be."
        remedy = "Free some space, or choose a folder on another disk with --home or LOOM_HOME."
        findings.append(problem("disk-full", message, remedy))
    return findings or [fine("home", "It can be written, and there is room.")]


_REPORTS = Path("Microsoft", "DeveloperTools", ".onnxruntime")
_TRUE = {"1", "true", "yes", "on"}


def telemetry_section(
    *, environment: Mapping[str, str] | None = None, user_home: Path | None = None
) -> Section:
    """Look at the switches, which importing Loom has set, and for reports of onnxruntime. Blocks.

    Args:
        environment: variables; those of this process if not given.
        user_home: the user's home folder; this user's if not given.
    """
    variables = os.environ if environment is None else environment
    switches = {name: variables.get(name, "") for name in TELEMETRY_SWITCHES}
    findings = [
        _switched_on(name, value) for name, value in switches.items() if not _is_off(value, name)
    ] or [fine("telemetry", "It is switched off in every dependency that has any.")]
    folder = _report_folder(variables, user_home or Path.home())
    if os.access(folder, os.F_OK):
        message = (
            f"{folder} holds a device id and reports to Microsoft, which onnxruntime has queued: for an "
            "earlier version of Loom, which had not switched that off, or for another program."
        )
        remedy = "Delete that folder: Loom does not need it, and another program could send the reports."
        findings.append(warning("telemetry-reports", message, remedy))
    facts = {"switches": [f"{name}={value}" for name, value in switches.items()]}
    return Section(name="telemetry", facts=facts, findings=findings)


def _is_off(value: str, name: str) -> bool:
    return _is_true(value) == _is_true(TELEMETRY_SWITCHES[name])


def _is_true(value: str) -> bool:
    return value.strip().lower() in _TRUE


def _switched_on(name: str, value: str) -> Finding:
    message = f"The environment sets {name}={value}, which allows a dependency to report to its maker."
    return warning("telemetry-on", message, f"Take {name} out of the environment: Loom then switches it off.")


def _report_folder(variables: Mapping[str, str], user_home: Path) -> Path:
    """Where onnxruntime keeps reports on Linux and macOS; on Windows the system keeps them."""
    if sys.platform == "darwin":
        return user_home / "Library" / "Application Support" / _REPORTS
    caches = variables.get("XDG_CACHE_HOME", "")
    return (Path(caches) if caches else user_home / ".cache") / _REPORTS


def paste_safe(
    report: HealthReport, *, home: Path | None = None, environment: Mapping[str, str] | None = None
) -> HealthReport:
    """A report without what is nobody else's business, whoever has put it there.

    Names of knowledge bases, and of folders that are not under the home folder, stay.

    Args:
        report: what was found out.
        home: the user's home folder, which is written as `~`.
        environment: variables; the values of those whose names say that they are secret are left out.
    """
    redactor = _Redactor(home or Path.home(), secrets_in_environment(environment))
    sections = [redactor.section(section) for section in report.sections]
    return report.model_copy(update={"sections": sections})


class _Redactor:
    def __init__(self, home: Path, secrets: Iterable[SecretStr]) -> None:
        folders = {str(home), str(home.resolve())} - {home.anchor}  # a user without one has `/`
        alternatives = "|".join(map(re.escape, sorted(folders, key=len, reverse=True)))
        # Not the beginning of another folder's name: /home/ann is no part of /home/anna.
        self._home = re.compile(rf"(?:{alternatives})(?![\w.-])") if folders else None
        self._secrets = list(secrets)

    def section(self, section: Section) -> Section:
        findings = [
            finding.model_copy(
                update={"message": self.text(finding.message), "remedy": self.text(finding.remedy)}
            )
            for finding in section.findings
        ]
        facts = {name: self.value(value) for name, value in section.facts.items()}
        return Section(name=self.text(section.name), facts=facts, findings=findings)

    def value(self, value: object) -> object:
        """A fact of any shape."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(entry) for entry in cast("list[object]", value)]
        if isinstance(value, dict):
            entries = cast("dict[str, object]", value).items()
            return {self.text(name): self.value(entry) for name, entry in entries}
        return value

    def text(self, text: str) -> str:
        """A text of any kind."""
        text = hide_assigned(hide_forms(redacted(text, self._secrets)))
        return self._home.sub("~", text) if self._home else text
