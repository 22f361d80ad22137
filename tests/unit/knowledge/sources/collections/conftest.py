"""A guide to three hundred towns, as another program stores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from loom_core.embedding.registry import create_embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TOWNS = {
    "Lübeck": "Lübeck is a port on the Trave, known for marzipan.",
    "Visby": "Visby lies on Gotland; its wall is from the thirteenth century.",
    "厦门": "厦门是福建省的海滨城市，有鼓浪屿和一个大港口。",
    "Brno": "Brno is a city in Moravia with two rivers and no harbour.",
}


@dataclass(frozen=True)
class Town:
    """An entry: its number from 1, its text, and what is stored of it."""

    number: int
    text: str
    metadata: dict[str, Any]
    vector: NDArray[np.float32]


@pytest.fixture(scope="session")
def towns() -> list[Town]:
    """The entries; all but four have numbers for names."""
    embedder = create_embedder("hashing")
    # Each has words of its own: an approximate index loses some among texts that are nearly the same.
    shops = {number: " ".join(f"shop{number * factor}" for factor in range(1, 9)) for number in range(5, 301)}
    texts = {**_TOWNS, **{f"Town {number}": f"Town {number}: {words}." for number, words in shops.items()}}
    vectors = anyio.run(embedder.embed, list(texts.values()))
    return [
        Town(
            number,
            text,
            {
                "title": title,
                "url": f"https://guide.example/{number}",
                "lang": "zh" if title == "厦门" else "en",
                "year": 1900 + number,
                "rate": number / 2,
                "walled": number % 50 == 2,
            },
            vector,
        )
        for number, ((title, text), vector) in enumerate(zip(texts.items(), vectors, strict=True), start=1)
    ]
