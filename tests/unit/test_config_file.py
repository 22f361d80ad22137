"""Configuration files: JSON with comments as a model, and errors with places."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from loom_core.config_file import ConfigProblem, ConfigText, read_config_file
from loom_core.errors import ConfigError


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    how_many: int = Field(default=1, alias="howMany", ge=1)
    inner: list[list[_Part]] = []


class _Cat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["cat"]
    lives: int = 9


class _Dog(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["dog"]
    trick: str


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    parts: list[_Part] = []
    named: dict[str, _Part] = {}
    animal: Annotated[_Cat | _Dog, Field(discriminator="kind")] | None = None


def _written(text: str) -> ConfigText:
    written = ConfigText.of(text, name="a.json", depth=20)
    assert written
    return written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"parst": []}', "a.json:1:2: parst is not known here. Did you mean parts?"),
        (
            '{"parts": [\n  {"howmany": 2}]}',
            "a.json:2:4: parts[0].howmany is not known here. Did you mean howMany?",
        ),
        (
            '{"parts": [{"inner": [[{"howMany": 0}]]}]}',
            "a.json:1:25: parts[0].inner[0][0].howMany should be greater than or equal to 1.",
        ),
        (
            '{"named": {"名": {"zzz": 0}}}',
            "a.json:1:18: named.名.zzz is not known here. There are: howMany, inner.",
        ),
        (
            '{"animal": {"kind": "cat", "live": 3}}',
            "a.json:1:28: animal.live is not known here. Did you mean lives?",
        ),
        ('{"animal": {"kind": "dog"}}', "a.json:1:2: animal lacks 'trick'."),
        ('{"parts": 1}', "a.json:1:2: parts should be a list."),
        ('{"parts": [2]}', "a.json:1:12: parts[0] should be an object."),
        (
            '{"parts": [{"howMany": "三"}]}',
            "a.json:1:13: parts[0].howMany should be an integer, unable to parse string as an integer.",
        ),
        (
            '{"animal": {"kind": "cow"}}',
            "a.json:1:2: animal: Input tag 'cow' found using 'kind' does not match any of the "
            "expected tags: 'cat', 'dog'.",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_what_was_meant(text, said):
    with pytest.raises(ConfigError) as raised:
        _written(text).validate(_File, advice="Correct it.")
    assert raised.value.message == said
    assert raised.value.advice == "Correct it."


def test_of_many_problems_the_first_three_are_told():
    with pytest.raises(ConfigError) as raised:
        _written('{"a": 1, "b": 2, "c": 3, "d": 4}').validate(_File, advice="")
    assert [line in raised.value.message for line in ("1:2:", "1:10:", "1:18:", "1:26:")] == [
        True,
        True,
        True,
        False,
    ]


def test_the_advice_of_the_first_problem_counts():
    problems = [ConfigProblem(("parts",), "odd.", "Do this."), ConfigProblem((), "odd, too.", "Or that.")]
    error = _written('{\n "parts": []}').refusal(problems, advice="Correct it.")
    assert str(error) == "a.json:2:2: odd. a.json:1:1: odd, too. Do this."


@pytest.mark.hostile("expressions and configurations")
def test_a_file_is_read_whatever_is_in_it(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('\ufeff{"parts": [],} // 完', encoding="utf-8")
    written = read_config_file(path, depth=3, max_bytes=100, too_large="Make it smaller.")
    assert written
    assert written.value == {"parts": []}
    path.write_text("// nothing", encoding="utf-8")
    assert read_config_file(path, depth=3, max_bytes=100) is None
    assert read_config_file(tmp_path / "没有.json", depth=3, max_bytes=100) is None


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(ConfigError, match=r"There is no file .*a\.json"):
        read_config_file(path, depth=3, max_bytes=2 << 20, required=True)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        read_config_file(path, depth=3, max_bytes=2 << 20)
    path.write_text('{\n  "甲": ?}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a\.json:2:8: "):
        read_config_file(path, depth=3, max_bytes=2 << 20)
    path.write_text(" " * (3 << 20), encoding="utf-8")
    with pytest.raises(ConfigError, match="is larger than 2 MB") as raised:
        read_config_file(path, depth=3, max_bytes=2 << 20, too_large="Make it smaller.")
    assert raised.value.advice == "Make it smaller."
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config_file(tmp_path, depth=3, max_bytes=2 << 20)
