"""Notes about a user: their data, their validation, and their form for models."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from loom_core.errors import InvalidInputError
from loom_core.redaction import is_secret_name, redact_log_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "LONGEST_NOTE",
    "NewNote",
    "Note",
    "NoteKind",
    "NoteSource",
    "clean_text",
    "format_note",
    "list_notes",
    "same_text",
]

NoteKind = Literal["identity", "constraint", "preference", "fact"]
"""`identity`: the user's name, and how to address them; `constraint`: what always holds, such as an allergy
or a wish for all answers. These two are shown in every run; `preference` and `fact` if they may matter."""

NoteSource = Literal["agent", "rules", "model", "program"]
"""`agent`: the model called `remember`; `rules` and `model`: extracted from the user's words after a run;
`program`: the program or the operator wrote it."""

LONGEST_NOTE = 500
"""Maximum characters of a note."""

_STATED = re.compile(r"\d|[=:：]|\bis\b|\bare\b|是|为", re.IGNORECASE)
_CARD = re.compile(r"(?<!\d)\d(?:[ -]?\d){13,18}(?!\d)")
_IDENTITY_CARD = re.compile(r"(?<!\d)\d{17}[\dXx](?!\d)")  # of China
# White space and the punctuation of sentences; no signs with a meaning, as in `C++`, `A-` and `1.5`.
_IGNORED = re.compile(r"""[\s,.:;!?。、…'"“”‘’]+(?!\d)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNote:
    """A note to be stored.

    Attributes:
        text: one fact or wish, in a sentence.
        kind: its kind.
        slot: the question that it answers, such as `home`: the user has one answer at a time, and a later
            note with the same slot replaces it; empty if unknown.
        replaces: id of the note that it corrects; empty for none.
    """

    text: str
    kind: NoteKind = "fact"
    slot: str = ""
    replaces: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A stored note about a user.

    Attributes:
        id: its id, unique among the user's notes.
        text: the fact or wish.
        kind: its kind.
        slot: see `NewNote`.
        source: its origin.
        created: when this text was stored, in seconds since 1970.
        run_id: the run it comes from; empty if from none.
        session_id: the session of that run.
        earlier: texts that it replaced, oldest first, each after its date.
    """

    id: str
    text: str
    kind: NoteKind
    slot: str = ""
    source: NoteSource
    created: float
    run_id: str = ""
    session_id: str = ""
    earlier: tuple[str, ...] = ()

    @property
    def day(self) -> str:
        """The day on which the text was stored, in UTC."""
        return f"{datetime.fromtimestamp(self.created, UTC):%Y-%m-%d}"

    @property
    def is_standing(self) -> bool:
        """Whether it is shown in every run."""
        return self.kind in {"identity", "constraint"}

    def metadata(self) -> dict[str, Any]:
        """Return all but id and text, as the fields of a document."""
        return {
            "kind": self.kind,
            "slot": self.slot,
            "origin": self.source,
            "created": self.created,
            "run": self.run_id,
            "session": self.session_id,
            "earlier": list(self.earlier),
        }

    @classmethod
    def of(cls, id_: str, text: str, fields: Mapping[str, Any]) -> Note:
        """Return the note of a document with these fields."""
        return cls(
            id=id_,
            text=text,
            kind=fields["kind"],
            slot=fields["slot"],
            source=fields["origin"],
            created=fields["created"],
            run_id=fields["run"],
            session_id=fields["session"],
            earlier=tuple(fields["earlier"]),
        )


def clean_text(text: str) -> str:
    """Return the text of a note on one line.

    Raises:
        InvalidInputError: it is empty or too long, or looks like it holds a secret.
    """
    cleaned = " ".join(unicodedata.normalize("NFC", text).split())
    if not 0 < len(cleaned) <= LONGEST_NOTE:
        raise InvalidInputError(
            f"A note cannot have {len(cleaned)} characters.",
            advice=f"Write one fact in a sentence of at most {LONGEST_NOTE} characters.",
        )
    if _has_secret(cleaned):
        raise InvalidInputError(
            "The note was not stored: it looks like a password, a key, or the number of a card.",
            advice="Secrets are never remembered; the user keeps them elsewhere.",
        )
    return cleaned


def is_storable(text: str) -> bool:
    """Whether a text can be stored; see `clean_text`."""
    try:
        clean_text(text)
    except InvalidInputError:
        return False
    return True


def same_text(one: str, other: str) -> bool:
    """Whether two texts are the same but for case, width, white space and the punctuation of sentences."""
    return _bare(one) == _bare(other)


def format_note(note: Note) -> str:
    """Return a note for a model, on one line after its id; it tells the user's own words from the agent's."""
    text = f"The user: {note.text}" if note.source == "rules" else note.text
    return f"[{note.id}] {text} ({note.kind}, {note.day})"


def list_notes(notes: Sequence[Note]) -> str:
    """Return notes for a model, one a line."""
    return "\n".join(map(format_note, notes))


def _bare(text: str) -> str:
    return _IGNORED.sub("", unicodedata.normalize("NFKC", text).casefold())


def _has_secret(text: str) -> bool:
    if redact_log_text(text) != text or _IDENTITY_CARD.search(text):
        return True
    if is_secret_name(text) and _STATED.search(text):
        return True
    return any(_is_card_number(match[0]) for match in _CARD.finditer(text))


def _is_card_number(text: str) -> bool:
    """Whether digits have the check digit of payment cards (Luhn)."""
    digits = [int(each) for each in text if each.isdigit()]
    doubled = (2 * each - 9 * (each > 4) for each in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
