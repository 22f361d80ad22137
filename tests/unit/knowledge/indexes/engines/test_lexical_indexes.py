"""The contract of lexical indexes, for the engines on this machine and for one that others register."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.indexes.engines.tantivy import TantivyIndex
from loom_core.knowledge.interface import LexicalIndex
from loom_core.testing.lexical_stores import LexicalIndexContract, LexicalServerContract
from tests.fixtures import plain_lexical_index

assert plain_lexical_index.PlainLexicalIndex


class TestMemoryLexicalIndex(LexicalIndexContract):
    @contextmanager
    def empty_index(self) -> Generator[LexicalIndex]:
        index = MemoryLexicalIndex()
        yield index
        index.close()


class TestTantivyIndex(LexicalIndexContract):
    @contextmanager
    def empty_index(self) -> Generator[LexicalIndex]:
        with tempfile.TemporaryDirectory() as folder:
            index = TantivyIndex(Path(folder) / "words")
            yield index
            index.close()


class TestPlainLexicalIndex(LexicalServerContract):
    url = "plain+memory://lexical-contract"
    unreachable = "plain+memory://nowhere"
