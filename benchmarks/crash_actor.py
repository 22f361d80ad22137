"""One process of the crash run (`crash.py`): changes a knowledge base at random until it is killed.

It says on standard output, a JSON object a line, what it is about to do (`tried`: version by URI, null for a
removal) and that it was acknowledged (`done`) or refused (`failed`). With `--verify` it brings everything to
an end instead and says what there is.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from loom_core.embedding.registry import create_embedder
from loom_core.errors import LoomError
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest, SyncRequest
from loom_core.knowledge.uris import path_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom_core.knowledge.store.changes import IndexName

__all__ = ["text_of"]

_MOST = 120  # documents that an actor has at a time
_MOST_JOBS = 12  # unfinished ones, of all actors
_VERSION = re.compile(r"in version (\d+)\.")


def text_of(name: str, version: int) -> str:
    """The text of a document: a title, names that others have as titles, and one to five passages."""
    dice = random.Random(f"{name}/{version}")
    towns = [f"Town{dice.randrange(60)}" for _ in range(6)]
    parts = [f"# {name.rpartition('/')[2]}", f"This stands in version {version}."]
    parts += [
        f"## {town}\n\n{town} lies near {other}. 城镇{dice.randrange(60)}在北京。 "
        + " ".join(f"Word{dice.randrange(5000)} follows {town}." for _ in range(dice.randrange(60)))
        for town, other in pairwise(towns)
    ]
    return "\n\n".join(parts)


def say(**facts: object) -> None:
    print(json.dumps(facts, ensure_ascii=False), flush=True)


class Actor:
    """Does one thing after the other; `known` are the versions of its documents."""

    def __init__(self, knowledge_base: GraphRAGKnowledgeBase, args: argparse.Namespace) -> None:
        self._knowledge_base = knowledge_base
        self._dice = random.Random(args.seed)
        self._name: str = args.name
        self._version: int = args.first_version
        self._folder: Path = args.files / args.name
        self._known: dict[str, int] = json.loads(sys.stdin.readline())

    async def run(self) -> None:
        """Go on until the process ends."""
        self._folder.mkdir(parents=True, exist_ok=True)
        acts: dict[Callable[[], Awaitable[None]], int] = {
            self._put: 8,
            self._remove: 3,
            self._sync: 4,
            self._ask: 4,
            self._rebuild: 1,
            self._checkpoint: 1 if self._knowledge_base.store.sharing is None else 0,
        }
        while True:
            act = self._dice.choices(list(acts), list(acts.values()))[0]
            try:
                while await to_thread.run_sync(self._unfinished) > _MOST_JOBS:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
                await act()
            except LoomError as error:
                say(failed=str(error))
            await anyio.sleep(self._dice.choice([0, 0, 0.02, 0.2]))

    def _unfinished(self) -> int:
        sql = "SELECT COUNT(*) FROM jobs WHERE finished_at IS NULL"
        return self._knowledge_base.store.database.row(sql)[0]

    async def _put(self) -> None:
        dice = self._dice
        new = [f"crash:{self._name}/{dice.randrange(10**6)}" for _ in range(dice.randrange(1, 16))]
        changed = dice.sample(sorted(self._known), min(len(self._known), dice.randrange(6)))
        versions: dict[str, int] = {}
        for uri in [*new, *changed]:
            self._version += 1
            versions[uri] = self._version
        say(tried=versions)
        drafts = [DocumentDraft(uri=uri, text=text_of(uri, v)) for uri, v in versions.items()]
        await to_thread.run_sync(self._knowledge_base.submit, DocumentsRequest(drafts))
        self._knowledge_base.worker.wake()
        say(done=True)
        self._known |= versions

    async def _remove(self) -> None:
        count = max(self._dice.randrange(1, 8), len(self._known) - _MOST)
        uris = self._dice.sample(sorted(self._known), min(len(self._known), count))
        say(tried=dict.fromkeys(uris))
        await self._knowledge_base.remove(uris)
        say(done=True)
        for uri in uris:
            del self._known[uri]

    async def _sync(self) -> None:
        dice, there = self._dice, sorted(self._folder.rglob("*.md"))
        for path in dice.sample(there, min(len(there), dice.randrange(4))):
            if dice.random() < 0.4:
                path.unlink()
            elif dice.random() < 0.5:
                path.rename(path.with_name(f"文件{dice.randrange(10**6)}.md"))
            else:
                self._write(path)
        for _ in range(dice.randrange(4)):
            self._write(self._folder / f"file{dice.randrange(10**6)}.md")
        await to_thread.run_sync(self._knowledge_base.submit, SyncRequest([self._folder]))
        self._knowledge_base.worker.wake()

    def _write(self, path: Path) -> None:
        self._version += 1
        path.write_text(text_of(path.stem, self._version), encoding="utf-8")

    async def _ask(self) -> None:
        await self._knowledge_base.search(f"What lies near Town{self._dice.randrange(60)}?")

    async def _rebuild(self) -> None:
        changes = self._knowledge_base.store.changes
        names: list[IndexName] = ["words", "vectors", "graph"]
        name = self._dice.choice(names)
        await to_thread.run_sync(
            lambda: changes.mark_damaged(name, generation=changes.state(name).generation)
        )

    async def _checkpoint(self) -> None:
        def checkpoint() -> None:
            with self._knowledge_base.store.database.read() as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

        await to_thread.run_sync(checkpoint)


async def verify(knowledge_base: GraphRAGKnowledgeBase, files: Path) -> None:
    """Bring everything to an end, compare, and say what there is."""
    with anyio.fail_after(300):
        await knowledge_base.worker.drain()
    folders = await to_thread.run_sync(lambda: sorted(path for path in files.iterdir() if path.is_dir()))
    await knowledge_base.sync_paths(folders, allow_empty=True)
    documents, wrong = await to_thread.run_sync(compare, knowledge_base, files)
    report = await knowledge_base.check()
    done, chunks = knowledge_base.coverage()
    answer = await knowledge_base.search("What lies near Town1?")
    say(
        documents=documents,
        wrong=wrong,
        findings=[asdict(finding) for finding in report.findings],
        without_vector=chunks - done,
        answered=bool(answer.items) or not chunks,
    )


def compare(knowledge_base: GraphRAGKnowledgeBase, files: Path) -> tuple[dict[str, int], list[str]]:
    """Versions of the documents that were given as texts, and URIs of what is not as it must be."""
    store = knowledge_base.store
    documents: dict[str, int] = {}
    wrong: list[str] = []
    filed: set[Path] = set()
    after = 0
    while rows := store.documents.list(after=after, limit=500):
        after = rows[-1].key
        for row in rows:
            text = store.documents.text(row.key)
            match = _VERSION.search(text)
            version = int(match[1]) if match else 0
            if row.uri.startswith("file:"):
                path = path_of(row.uri)
                filed.add(path)
                same = path.exists() and path.read_text(encoding="utf-8").strip() == text.strip()
            else:
                documents[row.uri] = version
                same = text.strip() == text_of(row.uri, version).strip()
            if not same:
                wrong.append(row.uri)
    # An actor that is killed while it writes a file leaves an empty one, which holds no document.
    there = {path.resolve() for path in files.rglob("*.md") if path.stat().st_size}
    missing = there - {path.resolve() for path in filed}
    return documents, wrong + [f"missing: {path.name}" for path in sorted(missing)]


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("home", type=Path)
    arguments.add_argument("files", type=Path)
    arguments.add_argument("--verify", action="store_true")
    arguments.add_argument("--name", default="")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--first-version", type=int, default=0)
    arguments.add_argument("--database", default="")
    args = arguments.parse_args()
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), name="crash", path=args.home, database=args.database
    )
    if args.verify:
        await verify(knowledge_base, args.files)
        knowledge_base.close()
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        tasks.start_soon(Actor(knowledge_base, args).run)


if __name__ == "__main__":
    anyio.run(main)
