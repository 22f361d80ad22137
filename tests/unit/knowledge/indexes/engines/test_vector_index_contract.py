"""The contract of vector indexes, for an engine that another distribution registers."""

from loom_core.testing.stores import VectorIndexContract
from tests.fixtures import plain_vector_index

assert plain_vector_index.PlainVectorIndex


class TestPlainVectorIndex(VectorIndexContract):
    url = "plain+memory://contract"
    unreachable = "plain+memory://nowhere"
