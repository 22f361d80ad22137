"""Types of numeric options: argparse names the option, as it was typed, in the error about another value."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

__all__ = ["fraction", "whole_number"]


def whole_number(most: int | None = None) -> Callable[[str], int]:
    """Return the type of an option that takes a whole number from 1 to a maximum; None for any number."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = 0
        if number < 1 or (most is not None and number > most):
            expected = "1 or more" if most is None else f"from 1 to {most}"
            raise argparse.ArgumentTypeError(f"{text} is not {expected}")
        return number

    return convert


def fraction(text: str) -> float:
    """Convert the value of an option that takes a number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return number
