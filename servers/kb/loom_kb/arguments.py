"""Arguments that several tools have, as a model reads them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

__all__ = ["Source"]

Source = Annotated[str | None, Field(description="Knowledge base; leave out for all.")]
"""Which knowledge base is meant."""
