"""Settings that are nothing but numbers above 0."""

from __future__ import annotations

from loom_core.errors import ConfigError

__all__ = ["check_above_zero"]


def check_above_zero(*, of: str = "", **numbers: float | None) -> None:
    """Refuse settings that are not above 0; None stands for one that is not set.

    Args:
        of: what they are settings of, for the message.
        numbers: each by its name.

    Raises:
        ConfigError: one of them is 0, below, or no number.
    """
    for name, number in numbers.items():
        if number is not None and not number > 0:
            setting = f"{name} of {of}" if of else name
            raise ConfigError(f"{setting} is {number}.", advice="Use a number above 0.")
