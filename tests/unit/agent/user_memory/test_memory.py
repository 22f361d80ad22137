"""Notes about users: stored once, corrected, found, deleted for good; each user's apart from the others'."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loom_core.agent import NewNote, Note, UserMemory
from loom_core.embedding.interface import ForwardingEmbedder
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.storage import Database


@pytest.fixture
def memory(tmp_path: Path) -> UserMemory:
    return UserMemory(tmp_path / "memory", embedder=HashingEmbedder())


def _texts(notes: list[Note]) -> set[str]:
    return {each.text for each in notes}


async def _add(memory: UserMemory, user: str, *texts: str) -> list[Note]:
    return await memory.add(user, [NewNote(text=text) for text in texts])


async def test_no_operation_reaches_the_notes_of_another_user(memory: UserMemory) -> None:
    [hers] = await _add(memory, "ada", "Ada is allergic to peanuts.")
    for user in ("bob", "ada ", "Ada", "ad\u0061\u0301", "ada\0", "../ada", "*"):
        assert await memory.notes(user) == []
        assert await memory.search(user, "peanuts") == []
        assert await memory.forget(user, [hers.id]) == []
        assert await memory.clear(user) == 0
    await _add(memory, "bob", *(f"Bob likes peanuts and number {number}." for number in range(10)))
    assert "Ada" not in "".join(_texts(await memory.search("bob", "allergic peanuts Ada", limit=5)))
    assert await memory.notes("ada") == [hers]
    assert await memory.users() == ["ada", "bob"]
    with pytest.raises(InvalidInputError, match="id of a user"):
        await memory.notes("")


async def test_users_are_listed_after_an_upgrade(memory: UserMemory, tmp_path: Path) -> None:
    path = tmp_path / "memory" / "old" / "record.db"
    path.parent.mkdir(parents=True)
    with closing(Database(path, schema=SCHEMA[:-1])) as database, database.write() as db:
        db.execute("INSERT INTO meta VALUES ('description', 'ada')")
        db.execute(
            "INSERT INTO documents (id, uri, title, title_source, mime, language, text, length, hash, "
            "metadata, added_at, updated_at) VALUES ('d', 'u', '', 'none', '', 'en', x'', 0, x'', '{}', 0, 0)"
        )
    assert await memory.users() == ["ada"]


@pytest.mark.parametrize(
    "texts", [("I take 15 mg.", "I take 1.5 mg."), ("I write C", "I write C++"), ("A+", "A-")]
)
async def test_a_correction_of_a_sign_is_stored(memory: UserMemory, texts: tuple[str, str]) -> None:
    [first] = await _add(memory, "ada", texts[0])
    await memory.add("ada", [NewNote(text=texts[1], replaces=first.id)])
    assert [each.text for each in await memory.notes("ada")] == [texts[1]]


async def test_a_correction_by_what_is_known_already_leaves_one_note(memory: UserMemory) -> None:
    [leeds, rome] = await _add(memory, "ada", "I live in Leeds", "I live in Rome")
    [note] = await memory.add("ada", [NewNote(text="I live in Leeds.", replaces=rome.id)])
    assert note.id == leeds.id
    assert await memory.notes("ada") == [note]
    assert [each.partition(": ")[2] for each in note.earlier] == [rome.text]


async def test_a_fact_is_stored_once_and_a_correction_takes_its_place(memory: UserMemory) -> None:
    [first] = await _add(memory, "ada", "I live in Leeds")
    assert await _add(memory, "ada", " i live in  LEEDS!", "I live in Leeds.") == [first, first]
    home = NewNote(text="I live in Leeds now, in Headingley", slot="home", replaces=first.id)
    [second] = await memory.add("ada", [home])
    [third] = await memory.add("ada", [NewNote(text="I moved to Rome", slot="home")])
    assert first.id == second.id == third.id
    assert await memory.notes("ada") == [third]
    assert [each.partition(": ")[2] for each in third.earlier] == [first.text, second.text]
    with pytest.raises(NotFoundError, match="no note 'm0'"):
        await memory.add("ada", [NewNote(text="I moved to Oslo", replaces="m0")])


async def test_many_notes_are_found_by_words_in_both_languages(memory: UserMemory) -> None:
    await _add(memory, "ada", *(f"The meeting number {number} was fine." for number in range(20)))
    await _add(memory, "ada", "She is allergic to peanuts.", "她喜欢喝茉莉花茶。")
    assert _texts(await memory.search("ada", "any peanuts", limit=1)) == {"She is allergic to peanuts."}
    assert _texts(await memory.search("ada", "点一杯茉莉花茶", limit=1)) == {"她喜欢喝茉莉花茶。"}


@pytest.mark.parametrize(
    "secret",
    [
        "My password is hunter2.",
        "密码是 hunter2",
        "Use sk-proj-0123456789abcdefghijklmn for it.",
        "Card 4111 1111 1111 1111",
        "身份证号 11010519491231002X",
        "",
        "x" * 501,
    ],
)
async def test_secrets_and_unusable_texts_are_not_stored(memory: UserMemory, secret: str) -> None:
    with pytest.raises(InvalidInputError):
        await _add(memory, "ada", "A harmless note", secret)
    assert await memory.notes("ada") == []


async def test_harmless_numbers_and_words_are_stored(memory: UserMemory) -> None:
    texts = ["Order 1234 5678 9012 3456", "My phone is +86 138 0013 8000", "I like secret gardens"]
    assert _texts(await _add(memory, "ada", *texts)) == set(texts)


async def test_forgotten_notes_leave_nothing_in_files(memory: UserMemory, tmp_path: Path) -> None:
    kept, old = await _add(memory, "ada", "The dog is called Rex", "The zorbaquux cat is called Tom")
    await memory.add("ada", [NewNote(text="The cat is called Tim", replaces=old.id)])
    assert any(b"zorbaquux" in each for each in _contents(tmp_path))
    assert _texts(await memory.forget("ada", [old.id, "m0"])) == {"The cat is called Tim"}
    assert await memory.notes("ada") == [kept]
    for content in _contents(tmp_path):
        assert b"zorbaquux" not in content
        assert b"called Tim" not in content
    assert await memory.search("ada", "Rex") == [kept]
    assert await memory.clear("ada") == 1
    assert list((tmp_path / "memory").iterdir()) == []


def _contents(folder: Path) -> Iterator[bytes]:
    """All files below a folder, and the values in databases, also compressed ones."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
    for path in folder.rglob("record.db"):
        with closing(sqlite3.connect(path)) as database:
            for (table,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                for row in database.execute(f'SELECT * FROM "{table}"'):
                    for value in row:
                        yield str(value).encode()
                        if isinstance(value, bytes) and value[:1] == b"\x78":
                            yield zlib.decompress(value)


class _NewerEmbedder(ForwardingEmbedder):
    """An embedder with vectors of its own."""

    def __init__(self) -> None:
        super().__init__(HashingEmbedder())

    @property
    def id(self) -> str:
        return "newer"


async def test_another_embedder_makes_the_vectors_again(memory: UserMemory, tmp_path: Path) -> None:
    await _add(memory, "ada", *(f"Note {number} about trains" for number in range(10)), "I like quinces")
    other = UserMemory(tmp_path / "memory", embedder=_NewerEmbedder())
    assert _texts(await other.search("ada", "quinces", limit=1)) == {"I like quinces"}


async def test_there_is_no_other_extraction() -> None:
    with pytest.raises(ConfigError, match="rules, model, off"):
        UserMemory(extraction="guess")  # type: ignore[arg-type] - a mistake of the caller
