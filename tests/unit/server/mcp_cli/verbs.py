"""Runs verbs of `mcp` as a command line would, on a machine of its own."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from loom_core.server.cli.command_line import split_arguments
from loom_core.server.cli.standard_commands import add_mcp_options
from loom_core.server.install.clients import Machine
from loom_core.server.install.command import Program
from loom_core.server.mcp_cli.entries import McpReport
from loom_core.server.mcp_cli.terminal import run_mcp_command
from loom_core.server.mcp_cli.trust import Prompter

__all__ = ["Terminal"]


@dataclass
class Terminal:
    """A person at a terminal.

    Attributes:
        folder: where the person's files are: `home` and `project` in it.
        answer: what the person says when asked.
        shown: what the person was shown before.
    """

    folder: Path
    answer: bool = False
    shown: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        """Loom's folder."""
        return self.folder / "home" / ".loom"

    @property
    def file(self) -> Path:
        """The user's `mcp.json`."""
        return self.home / "mcp.json"

    @property
    def project(self) -> Path:
        """The current folder, a repository."""
        return self.folder / "project"

    def mcp(self, *line: str) -> McpReport:
        """Run `mcp …`."""
        (self.project / ".git").mkdir(parents=True, exist_ok=True)
        parser = argparse.ArgumentParser()
        add_mcp_options(parser)
        arguments, served = split_arguments(line)
        machine = Machine("linux", self.folder / "home", self.project, {})
        program = Program(
            name="loom-query-server", module="loom_query", description="Searches.", machine=machine
        )
        asking = Prompter(show=self.shown.append, confirm=self._asked)
        return run_mcp_command(program, parser.parse_args(arguments), served, home=self.home, prompter=asking)

    def _asked(self, question: str) -> bool:
        self.shown.append(question)
        return self.answer
