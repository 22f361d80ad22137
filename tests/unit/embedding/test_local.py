from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import numpy as np
import pytest

from loom_core.embedding.local_models.base import LocalEmbedder, usable_threads
from loom_core.errors import EmbeddingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from loom_core.embedding.interface import EmbeddingKind


class LengthModel:
    """A model whose vector is the text's length; it can be made to wait or to fail."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.slices: list[tuple[int, EmbeddingKind]] = []

    def encode(self, texts: Sequence[str], kind: EmbeddingKind) -> NDArray[np.float32]:
        self.slices.append((len(texts), kind))
        self.started.release()
        if kind == "passage":
            self.gate.wait(10)
        if "bad" in texts:
            raise EmbeddingError("The model failed.")
        return np.array([[len(text)] for text in texts], dtype=np.float32)


def embedder(model: LengthModel, *, threads: int = 2, slice_size: int = 1) -> LocalEmbedder:
    return LocalEmbedder("length/1", dimension=1, load=lambda: model, threads=threads, slice_size=slice_size)


async def test_rows_keep_the_order_of_the_texts():
    texts = ["x" * length for length in (5, 0, 3, 9, 1)]
    vectors = await embedder(LengthModel(), slice_size=2).embed(texts)
    assert vectors[:, 0].tolist() == [5, 0, 3, 9, 1]


async def test_texts_go_in_slices():
    model = LengthModel()
    both = embedder(model, threads=1, slice_size=3)
    await both.embed(["a"] * 7)
    await both.embed(["a"] * 4, kind="query")
    assert model.slices == [(3, "passage"), (3, "passage"), (1, "passage"), (3, "query"), (1, "query")]


async def test_a_question_does_not_wait_for_passages_under_way():
    model = LengthModel()
    model.gate.clear()
    local = embedder(model, threads=1)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(local.embed, ["passage"] * 5)
            await anyio.to_thread.run_sync(model.started.acquire)
            assert (await local.embed(["why?"], kind="query")).tolist() == [[4]]
            assert model.slices == [(1, "passage"), (1, "query")]
            model.gate.set()


async def test_no_more_passages_than_threads_are_under_way():
    model = LengthModel()
    model.gate.clear()
    local = embedder(model, threads=2)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(local.embed, ["passage"] * 2)
            await anyio.to_thread.run_sync(model.started.acquire)
            await anyio.to_thread.run_sync(model.started.acquire)
            await anyio.wait_all_tasks_blocked()
            assert len(model.slices) == 2
            model.gate.set()


async def test_cancelling_returns_at_once():
    model = LengthModel()
    model.gate.clear()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(embedder(model).embed, ["passage"])
            await anyio.to_thread.run_sync(model.started.acquire)
            group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught
    model.gate.set()


async def test_a_failure_of_the_model_is_raised_as_it_is():
    with pytest.raises(EmbeddingError, match="The model failed"):
        await embedder(LengthModel()).embed(["good", "bad", "good"])


async def test_a_failed_load_is_tried_again():
    attempts: list[int] = []

    def load() -> LengthModel:
        attempts.append(1)
        if len(attempts) == 1:
            raise EmbeddingError("Not yet.")
        return LengthModel()

    local = LocalEmbedder("length/1", dimension=1, load=load)
    with pytest.raises(EmbeddingError, match="Not yet"):
        await local.embed(["a"])
    assert (await local.embed(["a"])).tolist() == [[1]]


def test_one_instance_serves_several_event_loops():
    local = embedder(LengthModel())
    for _ in range(2):
        assert anyio.run(local.embed, ["abc"]).tolist() == [[3]]


def test_threads_below_one_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        embedder(LengthModel(), threads=0)


def test_at_most_eight_threads_are_used_by_default(monkeypatch: pytest.MonkeyPatch):
    assert 1 <= usable_threads() <= 8
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert usable_threads() == 8
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert usable_threads() == 1
