"""Which keys the environment has. Only their names are ever shown."""

from __future__ import annotations

from collections.abc import Iterable

from loom_core.errors import ConfigError
from loom_core.keys import find_key
from loom_core.server.cli.health import Finding, Section, told_by

__all__ = ["keys_section", "language_model_variables"]


def keys_section(variables: Iterable[str]) -> Section:
    """Look for keys in environment variables; the keyring is not asked, as that may show the user a prompt.

    A key that is not there is no finding: only who needs it knows that it is missing. One that no vendor
    would take, such as one with a line break in it, is a problem.

    Args:
        variables: their names.
    """
    present: list[str] = []
    absent: list[str] = []
    findings: list[Finding] = []
    for variable in sorted(set(variables)):
        try:
            key = find_key(variable, keyring=False)
        except ConfigError as error:
            findings.append(told_by(error, "key-unusable", remedy="Copy it again."))
        else:
            (absent if key is None else present).append(variable)
    return Section(name="keys", facts={"set": present, "not_set": absent}, findings=findings)


def language_model_variables() -> set[str]:
    """The environment variables with the keys of those vendors of language models that need one."""
    from loom_core.llm.vendors import VENDORS

    return {row.key_variable for row in VENDORS.values() if row.key_variable and row.needs_key}
