"""Writes docs/reference/audit.md: the fields of the audit, and the commands that are on it.

    python -m tools.audit_reference

The page is made from loom_core/tools/auditing/audit.py and loom_core/server/cli/audit_command.py; a test
compares it with the file.
"""

from __future__ import annotations

from pathlib import Path

from loom_core.server.cli.audit_command import AUDITED_COMMANDS, AuditedCommand
from loom_core.tools.auditing.audit import AUDIT_FIELDS
from tools.provider_reference import table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "audit.md"

_HEAD = """\
# Fields of the audit log

Made by `python -m tools.audit_reference` from the code; do not edit. Its purpose:
[observability.md](../observability.md#audit).

Every line of `$LOOM_HOME/audit/audit.jsonl` is a JSON object with these fields; empty fields are omitted.
"""
_COMMANDS = """\
## Commands

These commands write a line of the kind `command`, with the listed arguments only, as others may be secret.
The commands of each server are in [command-line.md](command-line.md).
"""


def page() -> str:
    """Return the whole page."""
    fields = [("Field", "Meaning"), *((f"`{name}`", about) for name, about in AUDIT_FIELDS.items())]
    commands = [("Command", "When", "Arguments"), *(_row(*each) for each in AUDITED_COMMANDS.items())]
    parts = (_HEAD, table(fields), _COMMANDS, table(commands))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _row(name: str, command: AuditedCommand) -> tuple[str, str, str]:
    actions = ", ".join(f"`{action}`" for action in sorted(command.actions))
    options = ", ".join(f"`--{option}`" for option in command.when)
    when = actions or (f"with {options}" if options else "always")
    return (f"`{name}`", when, ", ".join(f"`{argument}`" for argument in command.arguments))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
