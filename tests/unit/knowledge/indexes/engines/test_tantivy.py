import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loom_core.errors import IndexDamagedError, InvalidInputError, StoreBusyError
from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex
from loom_core.knowledge.interface import LexicalQuery

WRITE_AND_WAIT = """
import sys
from pathlib import Path
from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex
from loom_core.knowledge.interface import LexicalQuery
index = TantivyIndex(Path(sys.argv[1]))
index.add([(1, ["kept"])])
index.commit()
index.add([(2, ["lost"])])
print("ready", flush=True)
sys.stdin.read()
"""


def writer_in_another_process(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def end(child: subprocess.Popen[str], how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(child.pid, how)
    child.communicate()


def test_everything_committed_is_there_after_reopening(tmp_path: Path) -> None:
    index = TantivyIndex(tmp_path / "知识库")
    index.add([(1, ["知识", "图谱"]), (2, ["x"])])
    index.commit()
    index.add([(3, ["uncommitted"])])
    index.close()
    index = TantivyIndex(tmp_path / "知识库")
    assert index.count() == 2
    assert index.search([LexicalQuery(["知识", "图谱"], match="all")]) == [[(1, 0.0)]]
    assert index.search([LexicalQuery(["uncommitted"], 5)]) == [[]]
    index.close()


def test_words_of_very_many_passages_are_found_among_the_allowed_ones(tmp_path: Path) -> None:
    index = TantivyIndex(tmp_path)
    index.add((key, ["every", "even" if key % 2 == 0 else "odd"]) for key in range(1, 10_101))
    index.commit()
    allowed = range(9_001, 10_101)
    [found, few] = index.search(
        [LexicalQuery(["every"], limit, match="all", among=allowed) for limit in (None, 7)]
    )
    assert {key for key, _ in found} == set(allowed)
    assert len(few) == 7
    assert {key for key, _ in few} <= set(allowed)
    index.close()


def test_a_killed_writer_leaves_no_lock_and_loses_only_what_was_not_committed(tmp_path: Path) -> None:
    end(writer_in_another_process(tmp_path))
    index = TantivyIndex(tmp_path)
    index.add([(3, ["mine"])])
    index.commit()
    assert [key for key, _ in index.search([LexicalQuery(["kept", "lost", "mine"], 5)])[0]] == [1, 3]
    index.close()


def test_a_second_writer_is_told_that_the_index_is_busy(tmp_path: Path) -> None:
    child = writer_in_another_process(tmp_path)
    try:
        index = TantivyIndex(tmp_path)
        with pytest.raises(StoreBusyError, match="writer"):
            index.add([(9, ["x"])])
        assert index.count() == 1
        index.close()
    finally:
        end(child)


def test_a_reader_concurrent_with_a_writer_sees_its_commits_after_a_reload(tmp_path: Path) -> None:
    writer = TantivyIndex(tmp_path)
    writer.add([(1, ["a"])])
    writer.commit()
    reader = TantivyIndex(tmp_path, read_only=True)
    writer.add([(2, ["a"])])
    writer.delete([1])
    writer.commit()
    assert [key for key, _ in reader.search([LexicalQuery(["a"], 5)])[0]] == [1]
    reader.reload()
    assert [key for key, _ in reader.search([LexicalQuery(["a"], 5)])[0]] == [2]
    with pytest.raises(StoreBusyError, match="reading only"):
        reader.add([(3, ["b"])])
    reader.close()
    writer.close()


def test_closing_frees_the_lock_for_another_writer(tmp_path: Path) -> None:
    first = TantivyIndex(tmp_path)
    first.add([(1, ["a"])])
    first.close()
    second = TantivyIndex(tmp_path)
    second.add([(1, ["b"])])
    second.commit()
    assert second.count() == 1
    second.close()


@pytest.mark.parametrize("key", [0, -1, 1 << 63])
def test_a_key_that_is_none_is_refused(tmp_path: Path, key: int) -> None:
    index = TantivyIndex(tmp_path)
    with pytest.raises(InvalidInputError):
        index.add([(key, ["a"])])
    index.close()


def test_too_small_a_heap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="at least 15"):
        TantivyIndex(tmp_path, heap_mb=14)


def test_there_must_be_an_index_to_read(tmp_path: Path) -> None:
    with pytest.raises(IndexDamagedError, match="no word index"):
        TantivyIndex(tmp_path / "absent", read_only=True)


def test_an_index_of_another_shape_is_reported_as_damage(tmp_path: Path) -> None:
    import tantivy

    schema = tantivy.SchemaBuilder().add_text_field("other").build()
    tantivy.Index(schema, path=str(tmp_path))
    with pytest.raises(IndexDamagedError):
        TantivyIndex(tmp_path)


def damaged(path: Path, suffix: str, content: bytes | None) -> None:
    index = TantivyIndex(path)
    index.add((key, ["a", f"w{key}"]) for key in range(1, 200))
    index.commit()
    index.close()
    for file in path.glob(f"*{suffix}"):
        size = file.stat().st_size
        file.write_bytes(file.read_bytes()[: size // 2] if content is None else content)


@pytest.mark.parametrize("suffix", ["meta.json", ".term", ".idx", ".fast", ".fieldnorm"])
@pytest.mark.parametrize("content", [None, b"", b"garbage" * 500], ids=["truncated", "emptied", "garbage"])
def test_damaged_files_are_reported_as_damage(tmp_path: Path, suffix: str, content: bytes | None) -> None:
    damaged(tmp_path, suffix, content)
    with pytest.raises(IndexDamagedError):  # noqa: PT012 - some files are first read by a search
        index = TantivyIndex(tmp_path, read_only=True)
        index.search([LexicalQuery(["a", "w7"], 5)])
        index.search([LexicalQuery(["a", "w7"], match="all")])
