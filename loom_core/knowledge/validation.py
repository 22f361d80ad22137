"""Validation of settings and of questions."""

from __future__ import annotations

from loom_core.errors import ConfigError, InvalidInputError

__all__ = ["check_limit", "check_question", "question_text", "require_positive"]


def require_positive(*, of: str = "", **numbers: float | None) -> None:
    """Require that settings are positive; None means not set.

    Args:
        of: the object they belong to, for the message.
        numbers: the settings by name.

    Raises:
        ConfigError: one of them is 0, negative, or not a number.
    """
    for name, number in numbers.items():
        if number is not None and not number > 0:
            setting = f"{name} of {of}" if of else name
            raise ConfigError(f"{setting} is {number}.", advice="Use a number above 0.")


_MAX_CHARACTERS = 8000  # maximum length of a question; more is a pasted document


def check_question(query: str) -> None:
    """Refuse a blank question.

    Raises:
        InvalidInputError: it is only white space.
    """
    if not query.strip():
        raise InvalidInputError("The question is empty.", advice="Ask in a few words or a sentence.")


def question_text(query: str) -> str:
    """Return a question without surrounding white space, cut to the maximum length.

    Raises:
        InvalidInputError: it is only white space.
    """
    check_question(query)
    return query.strip()[:_MAX_CHARACTERS]


def check_limit(limit: int, *, most: int, name: str = "limit") -> None:
    """Refuse a number of passages that is not a whole number from 1 to the maximum.

    Args:
        limit: the number of passages requested.
        most: the maximum.
        name: name of the argument, for the message.

    Raises:
        InvalidInputError: it is out of range, or not a whole number.
    """
    # A bool is an int to `isinstance`, and `limit=True` is a mistake.
    if type(limit) is not int or not 1 <= limit <= most:
        raise InvalidInputError(f"{name} is {limit!r}.", advice=f"Use 1 to {most}.")
