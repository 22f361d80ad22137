"""The option `--html OUT.html [RUN …]` of commands that list runs: export of an HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from loom_core.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Run
    from loom_core.server.pages.run_page import DrawRun

__all__ = ["PagedRuns", "WrittenPage", "add_html_option", "find_run", "write_run_page"]

_LATEST = "latest"
_LOOKED_AT = 50  # latest runs among which a run without a parent is searched


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPage:
    """An exported page.

    Attributes:
        path: path of the file.
        runs: number of runs in it.
        size: its size in bytes.
    """

    path: Path
    runs: int
    size: int

    def show(self, *, as_json: bool) -> None:
        """Print the result at the terminal."""
        from loom_core.server.cli.console import out, out_json

        if as_json:
            out_json({"html": str(self.path), "runs": self.runs, "bytes": self.size})
            return
        count = "1 run" if self.runs == 1 else f"{self.runs} runs"
        out(f"{self.path}: {count}, {self.size:,} bytes. Open it in a browser; it needs no network.")


class PagedRuns(Protocol):
    """The runs of a server."""

    def journal(self) -> Journal:
        """Return the journal of the runs."""
        ...

    async def run(self, run_id: str) -> Run:
        """Return a run; `NotFoundError` if there is none."""
        ...

    async def latest_runs(self, limit: int) -> Sequence[Run]:
        """Return the latest runs, the latest first."""
        ...


def add_html_option(command: argparse.ArgumentParser) -> None:
    """Add `--html`."""
    command.add_argument(
        "--html",
        nargs="+",
        metavar=("OUT.html", "RUN"),
        help="write a page for a browser: of the runs whose ids stand behind it (`latest` is one), or of"
        " those that would be listed",
    )


async def write_run_page(
    service: PagedRuns,
    given: Sequence[str],
    *,
    listed: Sequence[Run],
    limit: int,
    program: str,
    draw: DrawRun | None = None,
) -> WrittenPage:
    """Write the page that `--html` asks for.

    Args:
        service: the runs.
        given: the arguments of `--html`: the file, then ids.
        listed: the runs to show if no id is given; one more than `limit` signals that there are more.
        limit: maximum number of these runs.
        program: the program of the runs.
        draw: draws the flow of a run.

    Raises:
        InvalidInputError: the file cannot be written.
        NotFoundError: there is no such run.
    """
    import anyio
    from anyio import to_thread

    from loom_core.server.pages.page import write_page
    from loom_core.server.pages.run_page import runs_page

    ids = dict.fromkeys(given[1:])
    if given[0] == _LATEST or given[0].startswith("run_"):
        raise InvalidInputError(
            f"--html needs a file before {given[0]}.", advice=f"Write: --html run.html {given[0]}"
        )
    found = [await find_run(service, each) for each in ids] if ids else list(listed[:limit])
    runs = {run.id: run for run in found}
    more = not ids and len(listed) > limit
    text = await runs_page(service.journal(), list(runs.values()), program=program, more=more, draw=draw)
    path = Path(await anyio.Path(given[0]).expanduser())
    size = await to_thread.run_sync(write_page, path, text)
    return WrittenPage(path=path, runs=len(runs), size=size)


async def find_run(service: PagedRuns, name: str) -> Run:
    """Find the run with an id; `latest` is the latest run that is no child of another one.

    Raises:
        NotFoundError: there is no such run.
    """
    from loom_core.runs.run import is_for_call

    if name != _LATEST:
        return await service.run(name)
    latest = await service.latest_runs(_LOOKED_AT)
    for run in latest:
        if not is_for_call(run):
            return run
    raise NotFoundError("There is no run yet.", advice="Start one.")
