from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from chromadb.config import Settings

_Include = list[Literal["embeddings", "distances"]]

class _Found(TypedDict):
    ids: list[str]
    embeddings: NDArray[np.float64]

class _Nearest(TypedDict):
    ids: list[list[str]]
    distances: list[list[float]]

class Collection:
    name: str
    metadata: dict[str, str | int | float | bool] | None
    def count(self) -> int: ...
    def upsert(self, *, ids: list[str], embeddings: NDArray[np.float32]) -> None: ...
    def delete(self, *, ids: list[str]) -> object: ...
    def get(
        self, *, ids: list[str] | None = None, limit: int | None = None, offset: int | None = None, include: _Include
    ) -> _Found: ...
    def query(
        self, *, query_embeddings: Sequence[NDArray[np.float32]], n_results: int, include: _Include
    ) -> _Nearest: ...

class ClientAPI:
    def list_collections(self) -> list[Collection]: ...
    def get_collection(self, name: str, *, embedding_function: None) -> Collection: ...
    def create_collection(
        self,
        name: str,
        *,
        embedding_function: None,
        metadata: dict[str, int],
        configuration: dict[str, dict[str, str | int]],
    ) -> Collection: ...
    def close(self) -> None: ...

def PersistentClient(path: str | Path, settings: Settings) -> ClientAPI: ...
