"""A process killed while it adds documents loses nothing that was acknowledged, and doubles nothing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from tests.fixtures.fork_server import starts_quickly

TEXTS = 200
FILES = 100

CHILD = """
import sys
import anyio
from pathlib import Path
from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import DocumentsRequest, FilesRequest

async def main(home, texts, files):
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), path=Path(home)
    )
    if not knowledge_base.store.jobs.list():
        drafts = [DocumentDraft(uri=f"text:{i}", text=text) for i, text in enumerate(texts.split("|"))]
        print(knowledge_base.submit(DocumentsRequest(drafts)), flush=True)
        print(knowledge_base.submit(FilesRequest([Path(files)])), flush=True)
    await knowledge_base.worker.drain(progress=lambda: print("step", flush=True))

anyio.run(main, *sys.argv[1:])
"""

# Kills after so many steps: listing, batches of documents, vectors, indexes each are steps.
KILLS = (1, 3, 9, 6)

SAME = {
    "documents": "SELECT id, uri, title, hash FROM documents",
    "chunks": "SELECT id, start, end, hash, vector_hash FROM chunks",
    "vectors": "SELECT hash, vector FROM vectors",
    "names": "SELECT id, name, type, uses FROM names JOIN entities ON key = entity",
    "mentions": (
        "SELECT c.id, e.id, m.start, m.end, m.name, m.method FROM mentions AS m "
        "JOIN chunks AS c ON c.key = m.chunk JOIN entities AS e ON e.key = m.entity"
    ),
    "names to look for": "SELECT * FROM new_names",
}


def texts() -> list[str]:
    return [f"# Person{n}\n\nPerson{n} met Person{(n * 7) % TEXTS} in Town{n % 13}." for n in range(TEXTS)]


def write_files(folder: Path) -> None:
    folder.mkdir()
    for n in range(FILES):
        text = f"# Town{n}\n\nTown{n} lies north of Town{(n + 1) % FILES}. Person{n} lived there."
        (folder / f"town{n}.md").write_text(text, encoding="utf-8")


def run_and_kill(home: Path, files: Path, *, after: int) -> list[str]:
    """Lets a child work for some steps and kills it. Returns the jobs that it acknowledged, if any."""
    child = subprocess.Popen(
        [sys.executable, "-c", starts_quickly(CHILD), str(home), "|".join(texts()), str(files)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    jobs: list[str] = []
    steps = 0
    for line in child.stdout:
        steps += line == "step\n"
        jobs += [line.strip()] if line != "step\n" else []
        if steps == after:
            break
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    return jobs


def content(knowledge_base: GraphRAGKnowledgeBase) -> dict[str, list[tuple[object, ...]]]:
    rows = knowledge_base.store.database.rows
    return {name: sorted(map(tuple, rows(sql)), key=repr) for name, sql in SAME.items()}


async def finish(home: Path) -> GraphRAGKnowledgeBase:
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), path=home
    )
    await knowledge_base.worker.drain()
    return knowledge_base


async def uninterrupted(files: Path) -> GraphRAGKnowledgeBase:
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("hashing"))
    drafts = [DocumentDraft(uri=f"text:{i}", text=text) for i, text in enumerate(texts())]
    await knowledge_base.add_documents(drafts)
    await knowledge_base.add_paths([files])
    return knowledge_base


@pytest.mark.slow
def test_everything_that_was_acknowledged_is_there_exactly_once(tmp_path: Path):
    home, files = tmp_path / "kb", tmp_path / "files"
    write_files(files)
    acknowledged = [job for kill in KILLS for job in run_and_kill(home, files, after=kill)]
    assert len(acknowledged) == 2

    knowledge_base = asyncio.run(finish(home))
    jobs = [knowledge_base.job(id_) for id_ in acknowledged]
    assert [(job.state, job.counts) for job in jobs] == [
        ("done", {"added": TEXTS}),
        ("done", {"added": FILES}),
    ]
    assert knowledge_base.coverage() == (TEXTS + FILES, TEXTS + FILES)
    assert knowledge_base.index_lag() == {"words": 0, "graph": 0, "vectors": 0}

    expected = asyncio.run(uninterrupted(files))
    assert content(knowledge_base) == content(expected)
    (item,) = asyncio.run(knowledge_base.query("Who lived in Town42?", 1))
    assert item.source == (files / "town42.md").as_uri()
    expected.close()
    knowledge_base.close()
