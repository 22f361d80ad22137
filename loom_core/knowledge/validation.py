"""Settings that are nothing but numbers above 0."""

from __future__ import annotations

from loom_core.errors import ConfigError, InvalidInputError

__all__ = ["check_limit", "check_question", "question_text", "require_positive"]


def require_positive(*, of: str = "", **numbers: float | None) -> None:
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


_MAX_CHARACTERS = 8000  # that are read of a question; more is a pasted document


def check_question(query: str) -> None:
    """Refuse a question that says nothing.

    Raises:
        InvalidInputError: it is only white space.
    """
    if not query.strip():
        raise InvalidInputError("The question is empty.", advice="Ask in a few words or a sentence.")


def question_text(query: str) -> str:
    """A question without white space around it, and not longer than is read of one.

    Raises:
        InvalidInputError: it is only white space.
    """
    check_question(query)
    return query.strip()[:_MAX_CHARACTERS]


def check_limit(limit: int, *, most: int, name: str = "limit") -> None:
    """Refuse a number of passages that is no whole number from 1 to the most.

    Args:
        limit: how many are asked for.
        most: how many may be.
        name: what the caller calls it.

    Raises:
        InvalidInputError: it is not.
    """
    # A bool is an int to `isinstance`, and `limit=True` is a mistake.
    if type(limit) is not int or not 1 <= limit <= most:
        raise InvalidInputError(f"{name} is {limit!r}.", advice=f"Use 1 to {most}.")
