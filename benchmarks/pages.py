"""Benchmark of browser pages: time to write, size on disk, time to load, and frame rate while they are moved.

    python benchmarks/pages.py [--entities 5000] [--events 20000] [--repeat 3] [--kb NAME --home FOLDER]

Measured are the page of a graph of so many made-up entities, with four times as many relations; with
`--kb`, also that of the best connected entities of a knowledge base; and the page of a run of so many
events. "Written" is from the data in memory to the file, "painted" from opening it to the first thing that
is seen; frames are counted while the graph is moved, and while the run's conversation is scrolled. Each is
the median of `--repeat` times, in Chromium as the tests drive it, so without a graphics processor. Prints a
Markdown table.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from loom_kb.graph_pages.page import graph_html
from loom_kb.graph_pages.view import GraphView, ViewEntity, ViewRelation, view_of

from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.config import RAGConfig
from loom_core.paths import loom_home
from loom_core.runs.events import EventType, StreamEvent
from loom_core.runs.run import Run, RunRequest
from loom_core.server.pages.run_page import Bounds, RunRecord, run_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.browser import Browser

_BROWSER = Path(__file__).parents[1] / "tests" / "fixtures" / "browser.py"
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_FRAMES = """new Promise((done) => {
    const began = performance.now();
    let left = 60;
    const next = () => {
        %s;
        if (left-- > 0) requestAnimationFrame(next);
        else done(60_000 / (performance.now() - began));
    };
    requestAnimationFrame(next);
})"""
_MOVE = "picture.move(left % 2 ? 9 : -6, 4)"
_SCROLL = "document.querySelector('.words-list').scrollBy(0, 60)"
_TURN = 10  # events of one turn of the run that is made up


def main() -> None:
    """Write the pages, open them, print the table."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("--entities", type=int, default=5000)
    arguments.add_argument("--events", type=int, default=20_000)
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--kb", metavar="NAME", help="a knowledge base to show, too")
    arguments.add_argument("--home", type=Path, metavar="FOLDER", help="where it is")
    args = arguments.parse_args()
    graph = made_up_graph(args.entities)
    run = made_up_run(args.events)
    pages: list[tuple[str, str, Callable[[], str], str]] = [
        (*_told("graph, made up", graph), lambda: graph_html(graph), _MOVE)
    ]
    if args.kb:
        real = _read(args.kb, args.home, args.entities)
        pages.append((*_told(f"graph of `{args.kb}`", real), lambda: graph_html(real), _MOVE))
    pages.append(("run, made up", f"{args.events:,} events", lambda: _run_html(run), _SCROLL))
    print("| page | shows | written | size | painted | frames a second |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="loom-pages-") as folder, _browser() as browser:
        for name, shows, html, act in pages:
            times = [_measured(browser, Path(folder) / "page.html", html, act) for _ in range(args.repeat)]
            written, size, painted, frames = (statistics.median(each) for each in zip(*times, strict=True))
            print(
                f"| {name} | {shows} | {written:.1f} s | {size / 1e6:.1f} MB | {painted / 1000:.2f} s "
                f"| {frames:.0f} |",
                flush=True,
            )


def made_up_graph(count: int) -> GraphView:
    """A graph of entities of three types, in Chinese and English, with four relations each on the average."""
    kinds = ("person", "place", "thing")
    entities = [ViewEntity(f"实体 Entity {n}", kinds[n % 3], 1 + n % 9) for n in range(count)]
    ends = ((n * 7 % count, (n * n + n // 5 + 1) % count) for n in range(4 * count))
    relations = [ViewRelation(one, "knows", other, 1) for one, other in ends if one != other]
    return GraphView("made up", "", None, entities, relations, [], count, len(relations), 0)


def made_up_run(events: int) -> RunRecord:
    """A run of turns with text, a call and its result, until there are so many events."""
    made: list[StreamEvent] = []

    def add(type_: EventType, **payload: object) -> None:
        made.append(StreamEvent(type_, payload, run_id="run_a", seq=len(made) + 1, at=0.1 * len(made)))

    add("request_start", goal="查找织机的历史 and sum it up", profile="p", model="mock")
    for turn in range((events - 2) // _TURN):
        call = {"call_id": f"c{turn}", "tool": "search"}
        add("model_start", iteration=turn + 1, model="mock")
        add("text_delta", text=f"第 {turn} 步：" + "Looking at the next passage. " * 6)
        add("usage", input_tokens=900, output_tokens=80, cost=0.001)
        add("tool_calls_start", calls=[{**call, "arguments": {"query": f"织机 {turn}"}}])
        add("tool_start", **call)
        for step in range(_TURN - 6):
            add("tool_progress", call_id=call["call_id"], message="reading", done=step, total=4)
        add("tool_result", **call, status="ok", text="The loom of Lyon was driven by cards. " * 8, stages={})
    add("agent_finish", output="好的。", structured=None)
    return RunRecord(
        run=Run(
            id="run_a",
            request=RunRequest(goal="查找织机的历史", session_id="s"),
            status="completed",
            created=0.0,
            updated=0.1 * len(made),
            last_seq=len(made),
        ),
        events=made,
    )


def _run_html(record: RunRecord) -> str:
    return run_page([record], now=record.run.updated, program="loom-agent-server", bounds=Bounds())


def _read(name: str, home: Path | None, limit: int) -> GraphView:
    path = (home or loom_home()) / "kb" / name
    knowledge_base = GraphRAGKnowledgeBase.from_config(config=RAGConfig(), name=name, path=path)
    try:
        return view_of(knowledge_base, limit=limit)
    finally:
        knowledge_base.close()


def _told(name: str, view: GraphView) -> tuple[str, str]:
    return name, f"{len(view.entities):,} of {view.entities_in_all:,} entities, {len(view.relations):,} lines"


def _measured(browser: Browser, path: Path, html: Callable[[], str], act: str) -> tuple[float, ...]:
    """Seconds to write, bytes, milliseconds until something is painted, frames a second."""
    began = time.perf_counter()
    path.write_text(html(), encoding="utf-8")
    written = time.perf_counter() - began
    with browser.page(path) as page:
        painted = float(page.wait(_PAINTED))
        return written, float(path.stat().st_size), painted, float(page.run(_FRAMES % act))


def _browser() -> Browser:
    spec = importlib.util.spec_from_file_location("browser", _BROWSER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["browser"] = module
    spec.loader.exec_module(module)
    return module.Browser()


if __name__ == "__main__":
    main()
