from __future__ import annotations

import pytest
from mcp_types import ToolAnnotations as Hints

from loom_core.mcp_client.tools.tool import effective_annotations
from loom_core.tools.interface import ToolAnnotations

_WORST = ToolAnnotations(read_only=False, destructive=True, idempotent=False, open_world=True)


@pytest.mark.parametrize(
    "hints",
    [
        None,
        Hints(),
        Hints(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False),
    ],
)
def test_the_worst_is_assumed_of_a_server_that_is_not_trusted(hints: Hints | None) -> None:
    assert effective_annotations(hints, trusted=False) == _WORST


@pytest.mark.parametrize(
    ("hints", "counts"),
    [
        (None, _WORST),
        (Hints(), _WORST),
        (Hints(read_only_hint=True), ToolAnnotations(read_only=True, destructive=False)),
        (Hints(destructive_hint=False), ToolAnnotations(destructive=False)),
        (
            Hints(idempotent_hint=True, open_world_hint=False),
            ToolAnnotations(idempotent=True, open_world=False),
        ),
        (Hints(read_only_hint=True, destructive_hint=True), _WORST),
    ],
)
def test_a_trusted_server_is_believed_and_of_two_claims_the_worse(
    hints: Hints | None, counts: ToolAnnotations
) -> None:
    assert effective_annotations(hints, trusted=True) == counts
