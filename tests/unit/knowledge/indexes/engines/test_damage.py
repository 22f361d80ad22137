from pathlib import Path

import pytest

from loom_core.errors import IndexDamagedError, LoomError, first_line
from loom_core.knowledge.indexes.engines.damage import damage_boundary


def test_an_engines_error_becomes_damage_with_its_first_line() -> None:
    with (
        pytest.raises(IndexDamagedError, match=r"^The word index at words failed: broken\. It is derived"),
        damage_boundary("word index", Path("words"), errors=(ValueError,)),
    ):
        raise ValueError("broken.\nin detail")


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), LoomError("ours")])
def test_every_other_error_passes(error: BaseException) -> None:
    with pytest.raises(type(error)), damage_boundary("word index", Path("words"), errors=(ValueError,)):
        raise error


def test_a_panic_of_a_rust_engine_becomes_damage() -> None:
    """Tantivy panics at a phrase of one word."""
    import tantivy

    schema = tantivy.SchemaBuilder().add_text_field("body").build()
    with (
        pytest.raises(IndexDamagedError, match="crashed inside its engine"),
        damage_boundary("word index", Path("words"), errors=(ValueError,)),
    ):
        tantivy.Query.phrase_query(schema, "body", ["one"])


def test_an_error_without_words_is_named_by_its_type() -> None:
    assert first_line(ValueError()) == "ValueError"
