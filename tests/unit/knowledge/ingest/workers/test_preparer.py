"""Documents prepared in children: the same as here, whatever becomes of a child."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.loaders import LoadLimits
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.ingest.workers import Preparation, Preparer, draft_payload, preparation
from loom_core.knowledge.ingest.workers.preparation import is_foreign
from loom_core.knowledge.ingest.workers.worker import WorkerLimits
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store import PreparedDocument
from loom_core.knowledge.store.prepared_documents import ItemOutcome, JobItem, Prepared

pytestmark = pytest.mark.slow

PIPELINE = Pipeline.of(PipelineSpec("structure", {}, RuleSettings()))
LONG = "Anna Lind met Otto Brandt in Old Town. 李白是诗人，生于碎叶城。\n\n" * 10_000
_MUCH = 192 << 10  # bytes from which on a child prepares it
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are listed in /proc")


@pytest.fixture
def preparer_of() -> Iterator[Callable[..., Preparer]]:
    made: list[Preparer] = []

    def make(**limits: float) -> Preparer:
        made.append(Preparer(PIPELINE, children=1, child_limits=WorkerLimits(**limits)))  # pyright: ignore[reportArgumentType]
        return made[-1]

    yield make
    for preparer in made:
        preparer.close()


def material(n: int, text: str = "", *, known: bytes = b"") -> JobItem:
    payload = draft_payload(DocumentDraft(f"text:{n}", text or f"Text number {n}. 第{n}页。", f"Title {n}"))
    return JobItem(f"text:{n}", payload, {"tag": "x"}, known, len(payload))


def finish(preparer: Preparer, preparation: Preparation, *, seconds: float = 60.0) -> list[Prepared]:
    until = time.monotonic() + seconds
    while not preparer.work(preparation):
        assert time.monotonic() < until, "it takes too long"
    return [made for made in preparation.made if made is not None]


def wait_for(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.01)


def children_of(pid: int) -> set[int]:
    """Processes that a process started, but those that the tests as a whole need."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            found |= {*map(int, (task / "children").read_text().split())}
    return found - _EARLIER


_EARLIER: set[int] = set()


@pytest.fixture(autouse=True)
def earlier_children() -> None:
    """Notes the children that other tests of this process have started, such as fork servers."""
    if sys.platform == "linux":
        _EARLIER.update(children_of(os.getpid()))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_children_make_what_is_made_here(preparer_of):
    materials = [material(n) for n in range(100)]
    here = Preparer(PIPELINE, children=0)
    there = preparer_of()
    expected = finish(here, here.begin(materials))
    assert len(expected) == 100
    assert all(isinstance(made, PreparedDocument) for made in expected)
    assert finish(there, there.begin(materials)) == expected


def test_what_the_record_has_already_is_only_compared(preparer_of):
    preparer = preparer_of()
    first = finish(preparer, preparer.begin([material(n) for n in range(70)]))
    hashes = [made.hash for made in first if isinstance(made, PreparedDocument)]
    again = [material(n, known=hash_) for n, hash_ in enumerate(hashes)]
    assert finish(preparer, preparer.begin(again)) == [
        ItemOutcome("unchanged", hash=hash_) for hash_ in hashes
    ]


def test_files_are_read_in_a_child_and_each_bad_one_fails_alone(preparer_of, tmp_path: Path):
    (tmp_path / "good.html").write_text("<h1>Zell</h1><p>A town.</p>", encoding="utf-8")
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    (tmp_path / "note.md").write_text("# Note\n\nRead here.", encoding="utf-8")
    preparer = preparer_of()
    names = ("good.html", "bad.pdf", "none.docx", "note.md")
    good, bad, none, note = finish(
        preparer, preparer.begin([JobItem((tmp_path / name).as_uri()) for name in names])
    )
    assert isinstance(good, PreparedDocument)
    assert good.title == "Zell"
    assert isinstance(note, PreparedDocument)
    assert isinstance(bad, ItemOutcome)
    assert bad.state == "failed"
    assert isinstance(none, ItemOutcome)
    assert none.state == "failed"
    assert "bad.pdf" in bad.reason
    assert "does not exist" in none.reason


@pytest.mark.hostile("files of any kind")
def test_a_file_that_may_unpack_to_any_size_is_never_read_in_the_process_that_answers():
    names = ("note.md", "data.json", "README", "data.json.gz", "README.gz", "page.html", "ls.1")
    risky = [name for name in names if is_foreign(JobItem(f"file:///a/{name}", size=99))]
    assert risky == ["data.json.gz", "README.gz", "page.html", "ls.1"]


def test_a_document_that_takes_too_long_fails_and_the_others_do_not(preparer_of):
    preparer = preparer_of(deadline=10.0)  # in which a child starts, too, be the machine busy
    preparation = preparer.begin([material(1), material(2, LONG * 32), material(3)])
    wait_for(lambda: preparation.made[0])
    if sys.platform == "linux":
        (child,) = children_of(os.getpid())
        os.kill(child, signal.SIGSTOP)  # it is late without the processor, too
    first, long, last = finish(preparer, preparation)
    assert isinstance(first, PreparedDocument)
    assert long == ItemOutcome("failed", "it could not be prepared within 10 s")
    assert isinstance(last, PreparedDocument)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system sets no such limit")
def test_a_document_that_takes_too_much_memory_fails_and_the_others_do_not(preparer_of):
    preparer = preparer_of(memory=700 << 20)  # room for the next document, which is read meanwhile
    first, large, last = finish(preparer, preparer.begin([material(1), material(2, LONG * 32), material(3)]))
    assert isinstance(first, PreparedDocument)
    assert large == ItemOutcome("failed", "preparing it takes more memory than allowed")
    assert isinstance(last, PreparedDocument)


@needs_proc
def test_a_child_that_crashes_once_costs_nothing(preparer_of):
    preparer = preparer_of()
    preparation = preparer.begin([material(1), material(2, LONG[: _MUCH * 2]), material(3)])
    wait_for(lambda: preparation.made[0])
    (child,) = children_of(os.getpid())
    os.kill(child, signal.SIGSEGV)
    made = finish(preparer, preparation)
    assert all(isinstance(each, PreparedDocument) for each in made)


@needs_proc
def test_a_document_over_which_every_child_crashes_fails_alone(preparer_of):
    preparer = preparer_of()
    preparation = preparer.begin([material(1), material(2, LONG), material(3)])
    wait_for(lambda: preparation.made[0])
    crashed: set[int] = set()
    until = time.monotonic() + 30
    while preparation.made[1] is None:
        assert time.monotonic() < until
        for child in children_of(os.getpid()) - crashed:
            os.kill(child, signal.SIGSEGV)
            crashed.add(child)
        preparer.work(preparation)
    _, long, last = finish(preparer, preparation)
    assert long == ItemOutcome("failed", "the process that prepared it was killed by SIGSEGV")
    assert isinstance(last, PreparedDocument)
    assert len(crashed) == 2


@needs_proc
def test_children_end_when_there_is_nothing_to_do_and_start_again(preparer_of):
    preparer = preparer_of(idle=0.1)
    for _ in range(2):
        finish(preparer, preparer.begin([material(n) for n in range(64)]))
        wait_for(lambda: not children_of(os.getpid()))


@needs_proc
def test_closing_ends_the_children_at_once(preparer_of):
    preparer = preparer_of()
    preparation = preparer.begin([material(1, LONG), material(2, LONG)])
    wait_for(lambda: children_of(os.getpid()))
    preparer.close()
    wait_for(lambda: not children_of(os.getpid()))
    assert preparation.made == [None, None]
    assert len(finish(preparer, preparer.begin([material(n) for n in range(64)]))) == 64


PARENT = """
import sys, time
sys.path[:0] = {path!r}
from test_preparer import LONG, PIPELINE, children_of, material, os
from loom_core.knowledge.ingest.workers import Preparer
preparer = Preparer(PIPELINE, children=1)
preparer.begin([material(1, LONG * 4)])
while not (found := children_of(os.getpid())):
    time.sleep(0.01)
print(*found, flush=True)
time.sleep(60)
"""


@needs_proc
def test_a_child_ends_with_its_parent_however_that_ends():
    here = str(Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(path=[here])], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
        wait_for(lambda: not is_alive(child))


def test_children_are_told_how_the_rules_are_set():
    rules = RuleSettings(("place",), ("is a",), max_entities_per_chunk=1, max_relations_per_chunk=1)
    pipeline = Pipeline.of(PipelineSpec("simple", {"chunk_size": 80}, rules))
    preparer = Preparer(pipeline, children=1)
    made = finish(preparer, preparer.begin([material(n, LONG[:200]) for n in range(64)]))
    preparer.close()
    assert made == [
        preparation.prepare(material(n, LONG[:200]), pipeline=pipeline, limits=LoadLimits())
        for n in range(64)
    ]


def test_children_do_without_pydantic_which_takes_long_to_load():
    program = "import sys, loom_core.knowledge.ingest.workers.child; print('pydantic' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False"]


def test_a_pipeline_without_a_recipe_works_here():
    pipeline = Pipeline.of(PipelineSpec("simple", {"chunk_size": 50}, None))
    pipeline.recipe = None
    preparer = Preparer(pipeline)
    made = finish(preparer, preparer.begin([material(n) for n in range(70)]))
    assert all(isinstance(each, PreparedDocument) for each in made)
    preparer.close()


def test_where_no_process_can_be_started_documents_are_prepared_here(
    preparer_of, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    preparer = preparer_of()
    made = finish(preparer, preparer.begin([material(n) for n in range(64)]))
    assert all(isinstance(each, PreparedDocument) for each in made)
    assert "without a child process" in caplog.text


def test_an_interpreter_that_is_none_fails_its_documents(
    preparer_of, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    false = tmp_path / "python"
    false.write_text("#!/bin/sh\nprintf '\\000\\000\\000\\002{}'; cat >/dev/null\n", encoding="utf-8")
    false.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(false))
    preparer = preparer_of()
    made = finish(preparer, preparer.begin([JobItem((tmp_path / "a.html").as_uri())]))
    assert isinstance(made[0], ItemOutcome)
    assert made[0].state == "failed"
    assert "sent an invalid result" in made[0].reason


def test_the_settings_of_a_payload_come_through():
    payload = json.loads(draft_payload(DocumentDraft("text:a", "x", "T", "given", metadata={"a": 1})))
    assert payload == {
        "text": "x",
        "title": "T",
        "title_source": "given",
        "mime": "text/plain",
        "metadata": {"a": 1},
    }
