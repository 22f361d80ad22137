"""Findings of a check, and their repairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CheckFinding", "CheckReport", "Repair", "Subject"]

Subject = Literal["file", "references", "documents", "graph", "vectors", "changes", "jobs", "indexes"]
"""Subject of a check: the SQLite file, rows that refer to others, documents with their chunks and fields,
entities with their mentions and relations, vectors, the log of changes, jobs, the derived indexes."""

Repair = Literal[
    "salvage",  # the file: copy what can be read into a new one
    "rows",  # names of tables: delete the rows that refer to nothing
    "stray_chunks",  # keys of documents that are gone: remove the chunks they left
    "documents",  # keys: chunk and extract again from the text in the store
    "lost_texts",  # keys: load the file again
    "fields",  # keys of documents: write their fields again
    "graph",  # recount the names, drop entities that nothing supports
    "boilerplate",  # keys of documents: read their lines and judge their passages again
    "links",  # search all chunks for names again
    "vectors",  # hashes as hex: drop them, they are made again where needed
    "queue",  # rebuild the queue of chunks to embed
    "jobs",  # keys: continue them
    "index",  # names of indexes: rebuild them
]
"""Kind of repair; the comments say what `CheckFinding.keys` holds for it."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A defect that a check found.

    Attributes:
        subject: the subject of the check.
        text: description of the defect.
        repair: the repair, or None if there is none.
        keys: what to repair, see `Repair`.
    """

    subject: Subject
    text: str
    repair: Repair | None = None
    keys: tuple[int | str, ...] = ()


@dataclass(slots=True)
class CheckReport:
    """Report of a check of a knowledge base: findings, notes and repairs.

    Attributes:
        checked: a line for each thing that was checked, with numbers.
        findings: the defects; after a repair, those that remain.
        notes: remarks that are not defects.
        repaired: a line for each thing that was repaired.
    """

    checked: list[str] = field(default_factory=list[str])
    findings: list[CheckFinding] = field(default_factory=list[CheckFinding])
    notes: list[str] = field(default_factory=list[str])
    repaired: list[str] = field(default_factory=list[str])

    @property
    def sound(self) -> bool:
        """Whether no defect is left."""
        return not self.findings
