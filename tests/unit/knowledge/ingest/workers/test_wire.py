"""Wire format between parent and children: values survive a round trip, and malformed frames are detected."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.ingest.workers.wire import (
    FrameReader,
    decode_item,
    decode_prepared,
    encode_item,
    encode_prepared,
    read_frame,
    write_frame,
)
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store.prepared_documents import ItemOutcome, JobItem

PIPELINE = Pipeline.of(PipelineSpec("structure", {}, RuleSettings()))
texts = st.text(st.characters(), max_size=60)


@given(texts, texts, st.binary(max_size=40), st.none() | st.binary(max_size=100))
def test_a_material_comes_out_as_it_went_in(uri: str, value: str, known: bytes, payload: bytes | None):
    material = JobItem(uri, payload, {"名": value, "tags": [value]}, known)
    stream = io.BytesIO()
    write_frame(stream, *encode_item(material))
    stream.seek(0)
    assert decode_item(read_frame(stream), read_frame(stream)) == material


@given(texts)
def test_what_became_of_a_material_comes_out_as_it_went_in(text: str):
    whole = text.encode("utf-8", "replace").decode()  # as every loader gives it
    draft = DocumentDraft(
        "text:a", f"Zell is a town. 李白是诗人。{whole}", "Zell", "given", metadata={"n": 1.5}
    )
    document = PIPELINE.prepare_one(draft)
    for made in (document, ItemOutcome("failed", text), ItemOutcome("unchanged", hash=b"\0\xff")):
        assert made is not None
        assert decode_prepared(encode_prepared(made)) == made


@given(st.binary(max_size=60))
def test_bytes_that_are_no_answer_are_refused(frame: bytes):
    with pytest.raises(ValueError, match=r"."):
        decode_prepared(frame)


@pytest.mark.parametrize("answer", [[], ["other"], ["document"], ["document", [1], []], ["unchanged", 5], {}])
def test_answers_of_another_form_are_refused(answer: object):
    with pytest.raises(ValueError, match=r"."):
        decode_prepared(json.dumps(answer).encode())


@given(st.binary(max_size=8))
def test_a_stream_that_ends_within_a_frame_is_at_its_end(beginning: bytes):
    stream = io.BytesIO()
    write_frame(stream, beginning + b"x")
    for cut in range(len(stream.getvalue())):
        with pytest.raises(EOFError):
            read_frame(io.BytesIO(stream.getvalue()[:cut]))


class _Arriving(io.RawIOBase):
    """A pipe's reading end, through which bytes come in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        piece = self._pieces.pop(0) if self._pieces else b""
        buffer[: len(piece)] = piece
        return len(piece)


@given(st.lists(st.binary(max_size=300), min_size=1), st.lists(st.integers(1, 400)))
def test_frames_come_out_whole_however_they_arrive(frames: list[bytes], cuts: list[int]):
    sent = io.BytesIO()
    write_frame(sent, *frames)
    sent.seek(0)
    pieces = [piece for size in cuts if (piece := sent.read(size))]
    reader = FrameReader(io.BufferedReader(_Arriving([*pieces, sent.read()])))
    taken: list[bytes] = []
    while len(taken) < len(frames):
        some = reader.read()
        assert some
        taken += some
    assert taken == frames
    with pytest.raises(EOFError):
        reader.read()


def test_a_frame_that_is_cut_off_is_the_end():
    sent = io.BytesIO()
    write_frame(sent, b"whole", b"cut off")
    reader = FrameReader(io.BufferedReader(_Arriving([sent.getvalue()[:-1]])))
    assert reader.read() == [b"whole"]
    with pytest.raises(EOFError):
        reader.read()
