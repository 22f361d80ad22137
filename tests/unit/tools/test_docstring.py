from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from loom_core.tools.function_tool import Docstring


def _documented(text: str) -> Callable[[], None]:
    def function() -> None: ...

    function.__doc__ = text
    return function


def test_description_and_arguments_are_told_apart() -> None:
    said = Docstring.of(
        _documented(
            """Look up the weather.

            It is that of now: not a forecast.

            Args:
                city: the city,
                    as people write it: `北京`.
                unit (str): `c` or `f`.
                days (int, optional):
                    how many

            Returns:
                A line of text.

            Raises:
                OSError: never.
            """
        )
    )

    assert said.description == (
        "Look up the weather.\n\nIt is that of now: not a forecast.\n\nReturns:\n    A line of text."
    )
    assert said.arguments == {
        "city": "the city, as people write it: `北京`.",
        "unit": "`c` or `f`.",
        "days": "how many",
    }


def test_a_section_ends_where_text_stands_at_the_margin_again() -> None:
    said = Docstring.of(_documented("One.\n\nArgs:\n    a: b\nTwo."))

    assert said.description == "One.\n\nTwo."
    assert said.arguments == {"a": "b"}


def test_a_line_with_a_colon_is_no_section_where_nothing_is_indented_below() -> None:
    said = Docstring.of(_documented("Say one of these:\n\nNote:\nnothing"))

    assert said.description == "Say one of these:\n\nNote:\nnothing"


def test_a_function_without_docstring_says_nothing() -> None:
    assert Docstring.of(lambda: None) == Docstring("", {})


@given(st.text(alphabet="ab: \n\t文()*A", max_size=200))
def test_any_docstring_can_be_read(text: str) -> None:
    said = Docstring.of(_documented(text))

    assert "".join(said.description.split()) in "".join(text.split())
