"""Arguments that several tools have, as a model reads them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

__all__ = ["LAST_SEQ", "RunId"]

LAST_SEQ = 2**32 - 1
"""No event has a higher number."""

RunId = Annotated[
    str, Field(description="`run_id` of an answer.", min_length=1, examples=["run_donslw3m4epgqrgt"])
]
"""Which run is meant."""
