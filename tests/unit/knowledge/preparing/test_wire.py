"""What goes between parent and children comes out as it went in, and nonsense is told from it."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.extraction import RuleSettings
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.pipeline import Pipeline, Recipe
from loom_core.knowledge.preparing.making import Failed, Unchanged
from loom_core.knowledge.preparing.material import Material
from loom_core.knowledge.preparing.wire import (
    decode_made,
    decode_material,
    encode_made,
    encode_material,
    read_frame,
    write_frame,
)

PIPELINE = Pipeline.of(Recipe("structure", {}, RuleSettings()))
texts = st.text(st.characters(), max_size=60)


@given(texts, texts, st.binary(max_size=40), st.none() | st.binary(max_size=100))
def test_a_material_comes_out_as_it_went_in(uri: str, value: str, known: bytes, payload: bytes | None):
    material = Material(uri, payload, {"名": value, "tags": [value]}, known)
    stream = io.BytesIO()
    write_frame(stream, *encode_material(material))
    stream.seek(0)
    assert decode_material(read_frame(stream), read_frame(stream)) == material


@given(texts)
def test_what_became_of_a_material_comes_out_as_it_went_in(text: str):
    whole = text.encode("utf-8", "replace").decode()  # as every loader gives it
    draft = DocumentDraft(
        "text:a", f"Zell is a town. 李白是诗人。{whole}", "Zell", "given", metadata={"n": 1.5}
    )
    document = PIPELINE.prepare_one(draft)
    for made in (document, Failed(text), Unchanged(b"\0\xff")):
        assert made is not None
        assert decode_made(encode_made(made)) == made


@given(st.binary(max_size=60))
def test_bytes_that_are_no_answer_are_refused(frame: bytes):
    with pytest.raises(ValueError, match=r"."):
        decode_made(frame)


@pytest.mark.parametrize("answer", [[], ["other"], ["document"], ["document", [1], []], ["unchanged", 5], {}])
def test_answers_of_another_form_are_refused(answer: object):
    with pytest.raises(ValueError, match=r"."):
        decode_made(json.dumps(answer).encode())


@given(st.binary(max_size=8))
def test_a_stream_that_ends_within_a_frame_is_at_its_end(beginning: bytes):
    stream = io.BytesIO()
    write_frame(stream, beginning + b"x")
    for cut in range(len(stream.getvalue())):
        with pytest.raises(EOFError):
            read_frame(io.BytesIO(stream.getvalue()[:cut]))
