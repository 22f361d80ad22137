"""What `doctor` looks at for any server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from loom_core.server.doctor.audit import audit_section
from loom_core.server.doctor.examination import Check, blocking, examine
from loom_core.server.doctor.home import home_section
from loom_core.server.doctor.hosts import hosts_section
from loom_core.server.doctor.keys import keys_section
from loom_core.server.doctor.port import port_section
from loom_core.server.doctor.program import program_section
from loom_core.server.doctor.redaction import paste_safe
from loom_core.server.doctor.self_test import SELF_TEST_SECONDS, self_test_section
from loom_core.server.doctor.telemetry import telemetry_section
from loom_core.server.install.launch import Interpreter, launch_of

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.server.cli.health import HealthReport, Section

__all__ = ["ExaminedServer", "common_checks", "examined"]


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
