from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from loom_core.embedding.local_models.e5 import best_form, open_e5_graph

if TYPE_CHECKING:
    from loom_core.embedding.local_models.e5_weights import E5Weights


def test_both_forms_of_the_integers_give_the_same_vectors(e5_weights: E5Weights):
    x = e5_weights.word_rows([e5_weights.begin, *range(5, 60), e5_weights.end])[None]
    signed = open_e5_graph(e5_weights, "int8").run(["y"], {"x": x})[0]
    unsigned = open_e5_graph(e5_weights, "uint8").run(["y"], {"x": x})[0]
    if best_form() == "int8":
        np.testing.assert_array_equal(signed, unsigned)
    else:  # the signed form saturates here, which is why it is not used
        assert np.isfinite(unsigned).all()


@pytest.mark.parametrize(
    ("machine", "flags", "form"),
    [
        ("x86_64", "flags : avx2 avx512_vnni", "int8"),
        ("AMD64", "flags : avx2 avx_vnni", "int8"),
        ("x86_64", "flags : avx2", "uint8"),
        ("x86_64", None, "uint8"),
        ("aarch64", "flags : avx512_vnni", "uint8"),
    ],
)
def test_the_signed_form_is_used_only_where_it_is_exact(
    monkeypatch: pytest.MonkeyPatch, machine: str, flags: str | None, form: str
):
    def read(_path: Path, **_: str) -> str:
        if flags is None:
            raise FileNotFoundError
        return flags

    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(Path, "read_text", read)
    assert best_form() == form
