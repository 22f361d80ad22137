"""Arguments that several tools have, as a model reads them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

__all__ = ["RunId"]

RunId = Annotated[
    str, Field(description="`run_id` of an answer.", min_length=1, examples=["run_donslw3m4epgqrgt"])
]
"""Which run is meant."""
