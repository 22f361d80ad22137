"""Common checks of `doctor`, and redaction of its report for others to read.

They check the program and its packages, the configurations of MCP clients (read-only), Loom's folder, keys,
the audit, telemetry, and the HTTP port; the self-test starts the server.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pydantic import SecretStr

from loom_core import TELEMETRY_SWITCHES
from loom_core.errors import ConfigError, StoreError, UnreadableTextError
from loom_core.keys import redact
from loom_core.paths import audit_path
from loom_core.redaction import hide_assigned, hide_forms, secrets_in_environment
from loom_core.server.cli.health import (
    Finding,
    HealthReport,
    HealthSection,
    fine,
    problem,
    problem_from_error,
    warning,
)
from loom_core.server.doctor.check_runner import Check, blocking, run_checks
from loom_core.server.doctor.language_model import keys_section
from loom_core.server.doctor.port import port_section
from loom_core.server.doctor.self_test import SELF_TEST_SECONDS, self_test_section
from loom_core.server.install.clients import CLIENTS, Client, Machine, Scope
from loom_core.server.install.config_file import ConfigFile
from loom_core.server.install.launch import Interpreter, launch_of, runs

if TYPE_CHECKING:
    from collections.abc import Collection
    from importlib.metadata import Distribution

    from packaging.requirements import Requirement

__all__ = [
    "ExaminedServer",
    "RunningPython",
    "audit_section",
    "common_checks",
    "home_section",
    "hosts_section",
    "paste_safe",
    "program_section",
    "run_paste_safe",
    "telemetry_section",
]

_LITTLE_DISK = 500 << 20  # bytes; an ingest that fills the disk stops there
_REPORTS = Path("Microsoft", "DeveloperTools", ".onnxruntime")
_TRUE = {"1", "true", "yes", "on"}
_SECTIONS = {client.section for client in CLIENTS.values()}
"""Names of the clients' sections of servers; using another client's is a frequent mistake."""


@dataclass(frozen=True, slots=True)
class RunningPython:
    """Facts of a Python interpreter.

    Attributes:
        version: such as `3.11.7`.
        implementation: `CPython` or another.
        system: such as `Linux`.
        machine: its architecture, such as `x86_64`.
        bits: address width.
    """

    version: str
    implementation: str
    system: str
    machine: str
    bits: int

    @classmethod
    def running(cls) -> RunningPython:
        """Return the facts of this interpreter."""
        return cls(
            version=platform.python_version(),
            implementation=platform.python_implementation(),
            system=platform.system(),
            machine=platform.machine(),
            bits=sys.maxsize.bit_length() + 1,
        )

    def __str__(self) -> str:
        return f"{self.implementation} {self.version} ({self.bits} bits) on {self.system} {self.machine}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedServer:
    """Facts of a server, for its checks.

    Attributes:
        program: its command, and the name of its distribution, such as `loom-kb`.
        module: the module behind the command, such as `loom_kb`.
        home: Loom's folder.
        port: port of `serve --http`.
        options: options of `serve` in the self-test, so that it uses the same folder.
        variables: environment variables that may hold its keys.
    """

    program: str
    module: str
    home: Path
    port: int = 8765
    options: Sequence[str] = ()
    variables: Iterable[str] = ()


def common_checks(server: ExaminedServer) -> list[Check]:
    """Return the common checks, in reading order; a server's own checks follow."""

    async def self_test() -> HealthSection:
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


async def run_paste_safe(checks: Sequence[Check], *, program: str, version: str) -> HealthReport:
    """Run checks, and redact the report, so that people can paste it into an issue."""
    return paste_safe(await run_checks(checks, program=program, version=version))


def audit_section(home: Path) -> HealthSection:
    """Verify the audit of all servers. Blocks, and writes nothing.

    Args:
        home: Loom's folder.
    """
    from loom_core.server.cli.audit_command import explain_unkept
    from loom_core.tools.auditing.file import verify

    path = audit_path(home)
    try:
        report = verify(path)
    except StoreError as error:
        remedy = "Let this user read it."
        return HealthSection(
            name="audit", findings=[problem_from_error(error, "audit-unreadable", remedy=remedy)]
        )
    facts = {"file": str(path), "lines": report.lines, "head": report.head[:12] or None}
    if report.problem:
        message = f"It is not intact: {report.problem}"
        remedy = (
            "Find out who changed it; move all files of its folder away together, and a new log is started."
        )
        return HealthSection(name="audit", facts=facts, findings=[problem("audit-broken", message, remedy)])
    findings = [fine("audit", "Its hash chain is intact." if report.lines else "It is empty.")]
    if report.torn:
        message = f"{report.torn:,} lines were cut off when a process died."
        findings.append(warning("audit-torn", message, "Nothing has to be done."))
    if report.unkept:
        remedy = "See who has written them, with `audit show`."
        findings.append(warning("audit-unkept", explain_unkept(report.unkept), remedy))
    return HealthSection(name="audit", facts=facts, findings=findings)


def home_section(home: Path, *, needed: int = _LITTLE_DISK) -> HealthSection:
    """Check Loom's folder, or the nearest existing one above it. Blocks, and writes nothing.

    Args:
        home: Loom's folder, which need not exist.
        needed: bytes that have to be free.
    """
    nearest = next(path for path in (home, *home.parents) if _exists(path))
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    free = shutil.disk_usage(nearest).free
    facts = {"folder": str(home), "exists": _exists(home), "writable": writable, "free_MiB": free >> 20}
    return HealthSection(name="home", facts=facts, findings=_findings(nearest, writable, free, needed))


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
        message = f"It is not writable: this user may not write to {nearest}."
        remedy = "Make it writable for this user, or choose another folder with --home or LOOM_HOME."
        findings.append(problem("home-unwritable", message, remedy))
    if free < needed:
        message = f"Only {free >> 20:,} MiB are free on its disk, and {needed >> 20:,} should be."
        remedy = "Free some space, or choose a folder on another disk with --home or LOOM_HOME."
        findings.append(problem("disk-full", message, remedy))
    return findings or [fine("home", "It can be written, and there is room.")]


def telemetry_section(
    *, environment: Mapping[str, str] | None = None, user_home: Path | None = None
) -> HealthSection:
    """Check the telemetry switches, which importing Loom sets, and look for reports of onnxruntime. Blocks.

    Args:
        environment: variables; those of this process if not given.
        user_home: the user's home folder; this user's if not given.
    """
    variables = os.environ if environment is None else environment
    switches = {name: variables.get(name, "") for name in TELEMETRY_SWITCHES}
    findings = [
        _enabled_switch(name, value) for name, value in switches.items() if not _is_off(value, name)
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
    return HealthSection(name="telemetry", facts=facts, findings=findings)


def _is_off(value: str, name: str) -> bool:
    return _is_true(value) == _is_true(TELEMETRY_SWITCHES[name])


def _is_true(value: str) -> bool:
    return value.strip().lower() in _TRUE


def _enabled_switch(name: str, value: str) -> Finding:
    message = f"The environment sets {name}={value}, which allows a dependency to report to its maker."
    return warning("telemetry-on", message, f"Take {name} out of the environment: Loom then switches it off.")


def _report_folder(variables: Mapping[str, str], user_home: Path) -> Path:
    """Return the folder of onnxruntime's reports on Linux and macOS; on Windows, the system has them."""
    if sys.platform == "darwin":
        return user_home / "Library" / "Application Support" / _REPORTS
    caches = variables.get("XDG_CACHE_HOME", "")
    return (Path(caches) if caches else user_home / ".cache") / _REPORTS


def paste_safe(
    report: HealthReport, *, home: Path | None = None, environment: Mapping[str, str] | None = None
) -> HealthReport:
    """Redact private data in the report of any checks.

    Names of knowledge bases, and of folders that are not under the home folder, stay.

    Args:
        report: the report.
        home: the user's home folder, which is replaced by `~`.
        environment: environment variables; the values of secret ones are redacted.
    """
    redactor = _Redactor(home or Path.home(), secrets_in_environment(environment))
    sections = [redactor.section(section) for section in report.sections]
    return report.model_copy(update={"sections": sections})


class _Redactor:
    def __init__(self, home: Path, secrets: Iterable[SecretStr]) -> None:
        folders = {str(home), str(home.resolve())} - {home.anchor}  # a user without one has `/`
        alternatives = "|".join(map(re.escape, sorted(folders, key=len, reverse=True)))
        # Not the beginning of another name: /home/ann is no part of /home/anna, nor /root of //root@host.
        self._home = re.compile(rf"(?:{alternatives})(?![\w.@-])") if folders else None
        self._secrets = list(secrets)

    def section(self, section: HealthSection) -> HealthSection:
        findings = [
            finding.model_copy(
                update={"message": self.text(finding.message), "remedy": self.text(finding.remedy)}
            )
            for finding in section.findings
        ]
        facts = {name: self.value(value) for name, value in section.facts.items()}
        return HealthSection(name=self.text(section.name), facts=facts, findings=findings)

    def value(self, value: object) -> object:
        """Redact a fact."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(entry) for entry in cast("list[object]", value)]
        if isinstance(value, dict):
            entries = cast("dict[str, object]", value).items()
            return {self.text(name): self.value(entry) for name, entry in entries}
        return value

    def text(self, text: str) -> str:
        """Redact a text."""
        text = hide_assigned(hide_forms(redact(text, self._secrets)))
        return self._home.sub("~", text) if self._home else text


@dataclass(slots=True)
class _Host:
    """A client, and its entries that start the server, by name."""

    client: Client
    files: int = 0
    entries: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    findings: list[Finding] = field(default_factory=list[Finding])


def hosts_section(program: str, module: str, *, machine: Machine | None = None) -> HealthSection:
    """Check the configuration files of all known clients, of the user and of the current folder. Blocks.

    Only the name and the command of an entry are shown: the rest may hold secrets.

    Args:
        program: the server's command, such as `loom-kb`.
        module: the module behind it, such as `loom_kb`.
        machine: the machine with the files; this one if not given.
    """
    machine = machine or Machine.this()
    hosts = [_host(client, machine, program, module) for client in CLIENTS.values()]
    facts: dict[str, object] = {
        host.client.title: f"starts it as {', '.join(map(repr, host.entries))}"
        if host.entries
        else "does not start it"
        for host in hosts
        if host.files
    }
    facts["without_configuration"] = [host.client.title for host in hosts if not host.files]
    findings = [finding for host in hosts for finding in (*host.findings, *_entry_findings(host, program))]
    if not findings and any(host.entries for host in hosts):
        findings = [fine("hosts", "All clients that start it can do so.")]
    return HealthSection(name="clients", facts=facts, findings=findings)


def _host(client: Client, machine: Machine, program: str, module: str) -> _Host:
    host = _Host(client)
    for scope in get_args(Scope):
        place = client.file(machine, scope)
        if place is None:
            continue
        path = Path(place)
        try:
            file = ConfigFile.read(path)
            if file.raw is None:
                continue
            host.files += 1
            configuration = client.format.read(file.text)
        except UnreadableTextError as error:
            message = f"{client.title} cannot read {path}:{error.line}:{error.column}: {error.reason}."
            host.findings.append(problem("broken-config", message, "Correct that line, and start it again."))
            continue
        except ConfigError as error:
            host.findings.append(problem_from_error(error, "broken-config", remedy="Correct the file."))
            continue
        host.findings += _section_findings(client, path, configuration)
        for name, entry in _mapping(configuration.get(client.section)).items():
            if runs(_mapping(entry), program=program, module=module):
                host.entries[name] = _mapping(entry)  # a project's entry takes the place of the user's
    return host


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _section_findings(client: Client, path: Path, configuration: Mapping[str, Any]) -> Iterator[Finding]:
    others = sorted((_SECTIONS - {client.section}) & configuration.keys())
    if others and client.section not in configuration:
        message = f"{path} has {others[0]!r}, which {client.title} does not read."
        yield warning("wrong-section", message, f"Rename it to {client.section!r}.")


def _entry_findings(host: _Host, program: str) -> Iterator[Finding]:
    client, title = host.client, host.client.title
    again = f"Write the entry again: {program} install {client.id}"
    for name, entry in host.entries.items():
        command = str(entry.get("command", entry.get("cmd")))
        if shutil.which(Path(command).expanduser()) is None:
            message = f"{title} starts {name!r} by {command}, and there is no such command."
            yield problem("command-missing", message, again)
        if not client.names.fullmatch(name):
            yield warning("host-name", f"{title} may refuse a server of the name {name!r}.", again)
    if len(host.entries) > 1:
        names = ", ".join(map(repr, host.entries))
        first, *rest = (_launch_of(entry) for entry in host.entries.values())
        how = "with other options" if any(other != first for other in rest) else "in the same way"
        message = f"{title} starts {program} {len(host.entries)} times, as {names}, {how}."
        remedy = "Keep one: models see each tool as often, and each is a process of its own."
        yield warning("duplicate-entries", message, f"{remedy} {program} uninstall {client.id} --name NAME")


def _launch_of(entry: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(entry.get(key) for key in ("command", "cmd", "args", "env", "envs"))


def program_section(name: str, *, interpreter: RunningPython | None = None) -> HealthSection:
    """Check an installed distribution and all its requirements. Blocks for about half a second.

    Args:
        name: its name, such as `loom-kb`.
        interpreter: the Python to check; the running one if not given.
    """
    interpreter = interpreter or RunningPython.running()
    try:
        top = distribution(name)
    except PackageNotFoundError:
        finding = problem(
            "package-missing", f"{name} itself is not installed.", f"Install it: uv tool install {name}"
        )
        return HealthSection(name="program", facts={"python": str(interpreter)}, findings=[finding])
    packages: dict[str, str] = {}
    findings = [*_python_findings(top, interpreter), *_package_findings(top, packages)]
    facts = {
        name: top.version,
        "python": str(interpreter),
        "executable": sys.executable,
        "packages": dict(sorted(packages.items())),
    }
    return HealthSection(
        name="program",
        facts=facts,
        findings=findings or [fine("program", "Python and all packages meet the requirements.")],
    )


def _python_findings(top: Distribution, interpreter: RunningPython) -> Iterator[Finding]:
    from packaging.specifiers import SpecifierSet

    name, wanted = top.metadata["Name"], ",".join(top.metadata.get_all("Requires-Python") or ())
    install = f"uv tool install --python 3.12 {name}"
    if not SpecifierSet(wanted).contains(interpreter.version, prereleases=True):
        message = f"Python {interpreter.version} is not {wanted}, which {name} requires."
        yield problem("wrong-python", message, f"Install it with another Python: {install}")
    if interpreter.bits < 64:
        message = f"This Python is a {interpreter.bits}-bit program, and stores need 64 bits."
        yield problem("wrong-python", message, f"Install it with a 64-bit Python: {install}")
    if interpreter.implementation != "CPython":
        message = f"This Python is {interpreter.implementation}; {name} is tested with CPython only."
        yield warning("wrong-python", message, f"Install it with CPython: {install}")


def _package_findings(top: Distribution, direct: dict[str, str]) -> Iterator[Finding]:
    """Find missing packages and wrong versions; Loom's own requirements come before those of others.

    Args:
        top: the distribution whose requirements are checked, recursively.
        direct: is filled with the versions of the requirements of Loom's own distributions, by name.
    """
    program = top.metadata["Name"]
    remedy = f"Install {program} again in its own environment: uv tool install --force {program}"
    waiting: deque[tuple[Distribution, frozenset[str]]] = deque([(top, frozenset())])
    seen: set[tuple[str, frozenset[str]]] = set()
    told: set[str] = set()
    while waiting:
        owner, extras = waiting.popleft()
        ours = owner.metadata["Name"].startswith("loom-")
        for requirement in _requirements(owner, extras):
            name, wanted = requirement.name, frozenset(requirement.extras)
            by = f"which {owner.metadata['Name']} requires"
            try:
                found = distribution(name)
            except PackageNotFoundError:
                if name not in told:
                    yield problem("package-missing", f"{name} is not installed, {by}.", remedy)
                told.add(name)
                continue
            if ours:
                direct[name] = found.version
            if name not in told and not requirement.specifier.contains(found.version, prereleases=True):
                tell = problem if ours else warning  # others often require more than they need
                message = f"{name} is of version {found.version} and not {requirement.specifier}, {by}."
                yield tell("package-version", message, remedy)
                told.add(name)
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting.append((found, wanted))


def _requirements(owner: Distribution, extras: Collection[str]) -> Iterator[Requirement]:
    """Yield a distribution's requirements on this machine, with these extras."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in owner.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # of an old package with an invalid requirement
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement
