"""`shell`: commands on this machine, for who has decided to allow them. A person approves each."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import anyio
from anyio import to_thread
from pydantic import Field

from loom_core.errors import ConfigError
from loom_core.files.encoding import decode
from loom_core.plugin_registry import register
from loom_core.tools.builtin.command import Command
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.environment import child_environment
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, ToolOutput
from loom_core.tools.plain_text import without_control
from loom_core.tools.threads import tool_threads

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loom_core.tools.builtin.command import CommandResult
    from loom_core.tools.interface import Tool

__all__ = ["shell_tool", "terminal_text"]

_STOP_SECONDS = 5.0
# Nobody is there to answer, to page or to edit; colours are for people.
_UNATTENDED = {
    "DEBIAN_FRONTEND": "noninteractive",
    "EDITOR": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "TERM": "dumb",
}


@register("tool", "shell")
def shell_tool(
    root: FileRoot | Path,
    *,
    seconds: float = 60.0,
    most_seconds: float = 600.0,
    output_bytes: int = 200_000,
    environment: Mapping[str, str] | None = None,
) -> Tool:
    """The tool. Each call has to be approved by a person (`Tool.needs_approval`).

    A command can do whatever the user can who runs Loom: the folder is where it begins, and no fence. It
    finds none of the variables of Loom's environment but those that programs need to run at all.

    Args:
        root: where commands work.
        seconds: how long one may take that asks for nothing else.
        most_seconds: how long one may ask for.
        output_bytes: how much of its output is kept, half of it the beginning and half the end.
        environment: variables that commands find besides.

    Raises:
        ConfigError: the folder does not exist, or the system is Windows.
    """
    folder = FileRoot.of(root).folder
    if sys.platform == "win32":
        raise ConfigError("Commands cannot be run on Windows.", advice="Run Loom in WSL.")
    program = shutil.which("bash") or "/bin/sh"
    variables = {**_without_passwords(child_environment({})), **_UNATTENDED, **(environment or {})}

    async def shell(
        context: CallContext,
        command: Annotated[str, Field(min_length=1, max_length=100_000)],
        timeout: Annotated[float | None, Field(gt=0, le=most_seconds)] = None,  # noqa: ASYNC109 - of the program
    ) -> ToolOutput:
        """Run a command in a shell, in the working folder. A person has to approve it.

        Each call starts a new shell: `cd` and variables are forgotten. Nothing can be typed in, and what
        still runs in the background when the command ends is ended. Returns what it wrote, and its exit code.

        Args:
            context: Of the call.
            command: What to run, such as `git status`.
            timeout: Seconds after which it is ended.
        """
        limit = min(timeout or seconds, context.seconds or most_seconds)
        running = Command(
            [program, "-c", command],
            folder=folder,
            environment=variables,
            seconds=limit,
            most_bytes=output_bytes,
        )
        try:
            result = await to_thread.run_sync(running.run, abandon_on_cancel=True, limiter=tool_threads())
        except anyio.get_cancelled_exc_class():
            running.stop()
            with anyio.CancelScope(shield=running.has_begun):  # else there is nothing to wait for
                await to_thread.run_sync(running.done.wait, _STOP_SECONDS)
            raise
        return _output(result, limit)

    return tool(
        shell,
        approval_reason="It runs a command on this machine.",
        needs_seconds=most_seconds + _STOP_SECONDS,
    )


def _output(result: CommandResult, limit: float) -> ToolOutput:
    text = terminal_text(decode(result.head)[0])
    if result.left_out:
        text += f"\n[… {result.left_out:,} bytes are left out here …]\n"
    text += terminal_text(decode(result.tail)[0])
    if result.ended == "time":
        how = (
            f"ended after {limit:g} seconds, with all that it had started: give `timeout`, or do less at once"
        )
    elif result.code < 0:
        how = f"ended by signal {-result.code} after {result.seconds:.1f} seconds"
    else:
        how = f"exit code {result.code} after {result.seconds:.1f} seconds"
    lines = [*([text.rstrip()] if text.strip() else []), f"[{how}]"]
    return ToolOutput(
        "\n".join(lines), is_error=bool(result.code or result.ended), metadata={"exit_code": result.code}
    )


def _without_passwords(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables but for addresses of proxies that have a password in them."""
    return {name: value for name, value in variables.items() if not ("://" in value and "@" in value)}


_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, and moving about
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # titles and links
    "|\x1b[ -/]*[0-~]?"  # sets of characters
)


def terminal_text(text: str) -> str:
    """A text without what colours it and moves about; of a line that was written over, what came last."""
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in plain:
        plain = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n"))
    return without_control(plain)
