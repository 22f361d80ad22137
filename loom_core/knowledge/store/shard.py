"""Shards: a knowledge base that is split into several, each with the documents of some hashes.

The store of the knowledge base that was split names the databases of its shards, and each shard's store says
which one it is. So a shard takes of whatever is added to it only the documents that it holds.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.store.store import KnowledgeStore

__all__ = ["Shard", "read_shard", "refuse_sharded", "shard_number", "shards_of"]

_ID = re.compile(r"d([0-9a-f]{12})(?:\.|$)")  # of a document, or of a passage of it


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the shards of a knowledge base, which is a knowledge base itself.

    Attributes:
        of: name of the whole.
        number: its number, from 1.
        count: how many there are.
    """

    of: str
    number: int
    count: int

    @property
    def name(self) -> str:
        """Its own name."""
        return f"{self.of}_shard_{self.number}"

    def holds(self, uri: str) -> bool:
        """Whether the document with an address belongs here."""
        return _number_of(_digest(uri), self.count) == self.number

    def to_json(self) -> str:
        """Return the form in which its store has it."""
        return json.dumps(asdict(self))


def shard_number(id_or_uri: str, count: int) -> int:
    """Return the number of the shard, of `count`, that has a document or passage, by its id or address."""
    found = _ID.match(id_or_uri)
    return _number_of(found[1] if found else _digest(id_or_uri), count)


def read_shard(store: KnowledgeStore) -> Shard | None:
    """Return which shard a store is of; None if it is of a whole knowledge base. Blocks."""
    text = store.get("shard")
    return Shard(**json.loads(text)) if text else None


def shards_of(name: str, setting: str) -> list[tuple[Shard, str]]:
    """Return the shards of a knowledge base, each with the URL of its database; none if it is not split.

    Args:
        name: its name.
        setting: the metadata `shards` of its store. Without a URL, a shard is where the whole is.
    """
    databases: Sequence[str] = json.loads(setting) if setting else ()
    return [(Shard(name, n, len(databases)), url) for n, url in enumerate(databases, 1)]


def refuse_sharded(name: str, setting: str) -> None:
    """Refuse what works with one knowledge base only; arguments as for `shards_of`.

    Raises:
        InvalidInputError: it is split.
    """
    if shards := shards_of(name, setting):
        first, last = shards[0][0], shards[-1][0]
        others = ", ".join(dict.fromkeys(url for _, url in shards if url))
        raise InvalidInputError(
            f"The knowledge base {name!r} is split into {len(shards)} shards, and this works with one.",
            advice=f"Name one of them: {first.name} to {last.name}"
            + (f", which are in {others} (--database)." if others else "."),
        )


def _digest(uri: str) -> str:
    return sha256(uri.encode("utf-8", "replace")).hexdigest()[:12]  # as in the ids of documents


def _number_of(digest: str, count: int) -> int:
    return int(digest, 16) % count + 1
