"""Where a server's journal is, and its move to another place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.runs.journal import PostgresPlace

__all__ = ["journal_place", "move_journal"]


def journal_place(database: str, *, name: str, file: Path) -> Path | PostgresPlace:
    """Return where the journal is: in a database, in a schema that ends with a name, or in a file."""
    if not database:
        return file
    from loom_core.runs.journal import PostgresPlace

    return PostgresPlace(database, name=name)


def move_journal(source: Path | PostgresPlace, target: Path | PostgresPlace, *, as_json: bool) -> int:
    """Copy a journal, say what to do next, and return the exit code. Blocks.

    Raises:
        LoomError: see `copy_journal`.
    """
    from loom_core.runs.journal import PostgresPlace
    from loom_core.runs.journal.store import copy_journal
    from loom_core.server.cli.console import ProgressBar, out, out_json
    from loom_core.server.cli.database_option import after_move

    bar = ProgressBar("copying and comparing", "rows")
    copy_journal(source, target, progress=lambda done, total: bar.show(done // 2, total // 2))
    following = after_move(target.url if isinstance(target, PostgresPlace) else "")
    if as_json:
        out_json({"from": str(source), "to": str(target), "next": following})
    else:
        out(f"All rows of {source} are in {target} now, too.\n{following}")
    return 0
