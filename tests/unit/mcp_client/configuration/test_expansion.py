from __future__ import annotations

from collections.abc import Iterator

import keyring
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyring.backend import KeyringBackend

from loom_core.errors import ConfigError
from loom_core.mcp_client.configuration.expansion import Expansion, variables_of

_VARIABLES = {"HOME": "/home/我", "EMPTY": "", "API_KEY": "s3cret-value", "NESTED": "${HOME}"}
_NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


class _Keyring(KeyringBackend):
    """A keyring with one entry."""

    priority = -3  # the package keyring chooses among all classes that it sees

    def get_password(self, service: str, username: str) -> str | None:
        return "from-the-keyring" if (service, username) == ("loom", "github") else None

    def set_password(self, service: str, username: str, password: str) -> None:
        raise AssertionError


@pytest.fixture
def system_keyring() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(_Keyring())
    yield
    keyring.set_keyring(before)


def _text(text: str) -> str:
    return Expansion(_VARIABLES).text(text)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${HOME}/文档", "/home/我/文档"),
        ("${HOME}${HOME}", "/home/我/home/我"),
        ("${UNSET:-默认}", "默认"),
        ("${UNSET:-}", ""),
        ("${EMPTY}", ""),
        ("${EMPTY:-full}", "full"),
        ("${HOME:-x}", "/home/我"),
        ("${NESTED}", "${HOME}"),
        ("$HOME ${} ${1} ${HOME%/} $${", "$HOME ${} ${1} ${HOME%/} $${"),
        ("${URL:-http://localhost:80/a?b=-c}", "http://localhost:80/a?b=-c"),
    ],
)
def test_variables_are_put_in_once_and_everything_else_stays(text: str, expanded: str) -> None:
    assert _text(text) == expanded


def test_a_variable_that_is_not_set_is_named_and_no_value_is() -> None:
    with pytest.raises(ConfigError, match=r"^The variable TOKEN_A is not set\.") as caught:
        _text("${API_KEY} ${TOKEN_A}")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("${env:HOME}", "Write ${HOME}."),
        ("Bearer ${input:token}", "Write ${NAME} and set that variable"),
        ("${keyring:github}", "Write keyring:github as the whole value"),
    ],
)
def test_what_only_other_programs_understand_is_refused_with_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _text(text)
    assert advice in caught.value.advice


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("env:API_KEY", "s3cret-value"),
        ("Bearer env:API_KEY", "Bearer s3cret-value"),
        ("Bearer ${API_KEY}", "Bearer s3cret-value"),
        ("bearer env:API_KEY", "bearer s3cret-value"),
        ("ENV:API_KEY", "ENV:API_KEY"),
        ("envelope:x y", "envelope:x y"),
        ("see env:API_KEY", "see env:API_KEY"),
    ],
)
def test_a_whole_value_may_be_a_reference(text: str, expanded: str) -> None:
    assert Expansion(_VARIABLES).secret(text) == expanded


@pytest.mark.hostile("secrets")
def test_what_was_put_in_is_known_as_a_secret() -> None:
    expansion = Expansion(_VARIABLES)
    expansion.text("${HOME} ${API_KEY}")
    expansion.secret("env:NESTED")
    assert [secret.get_secret_value() for secret in expansion.secrets] == ["s3cret-value", "${HOME}"]


@pytest.mark.parametrize("text", ["env:UNSET", "env:not a name", "keyring:sk-1234567890"])
def test_a_reference_that_leads_nowhere_or_may_be_a_key_itself_is_refused_unless_it_is_plain_text(
    text: str,
) -> None:
    expansion = Expansion(_VARIABLES)
    if " " in text:
        assert expansion.secret(text) == text
        return
    with pytest.raises(ConfigError) as caught:
        expansion.secret(text)
    assert "sk-1234567890" not in str(caught.value)


@pytest.mark.usefixtures("system_keyring")
def test_a_secret_comes_from_the_keyring_of_the_system() -> None:
    expansion = Expansion({})
    assert expansion.secret("Bearer keyring:github") == "Bearer from-the-keyring"
    assert [secret.get_secret_value() for secret in expansion.secrets] == ["from-the-keyring"]
    with pytest.raises(ConfigError, match="The keyring has no entry 'gitlab'"):
        expansion.secret("keyring:gitlab")


def test_who_only_looks_does_not_ask_the_keyring() -> None:
    assert Expansion({}, keyring=False).secret("keyring:github") == "…"


@given(text=st.text(alphabet=st.sampled_from("${}:-AHOME_x我\n")))
def test_no_text_does_harm(text: str) -> None:
    try:
        expanded = Expansion({"HOME": "h", "A": "a"}).text(text)
    except ConfigError:
        return
    assert len(expanded) <= len(text)


@given(
    parts=st.lists(st.tuples(st.text(alphabet="ab我 /$", max_size=4), _NAMES), max_size=4),
    values=st.text(max_size=8),
)
def test_values_are_put_in_as_they_are(parts: list[tuple[str, str]], values: str) -> None:
    text = "".join(f"{before}${{{name}}}" for before, name in parts)
    variables = {name: values for _, name in parts}
    assert Expansion(variables).text(text) == "".join(f"{before}{values}" for before, _ in parts)
    assert variables_of(text) == [name for _, name in parts]


def test_the_variables_of_a_text_are_those_that_must_be_set_or_all() -> None:
    assert variables_of("${A} ${B:-x}") == ["A"]
    assert variables_of("${A} ${B:-x}", needed=False) == ["A", "B"]
    assert variables_of("Bearer env:KEY") == ["KEY"]
    assert variables_of("keyring:KEY") == []
