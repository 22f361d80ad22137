"""Checks of the language model and of vendors' keys.

Only the names of keys are shown, never their values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.keys import find_key
from loom_core.server.cli.health import Finding, HealthSection, problem, problem_from_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.llm.interface import LLMProvider

__all__ = ["keys_section", "language_model_variables", "model_section", "model_unavailable"]

_CAUSE_END = re.compile(r"[.:] (?=\S)")


def model_section(
    language_model: Callable[[], LLMProvider | None], *, otherwise: str
) -> HealthSection | None:
    """Check the configured language model; None without one. May read the keyring.

    Args:
        language_model: creates the model, or returns None if none is configured.
        otherwise: remedy for a problem without advice.
    """
    try:
        llm = language_model()
    except ConfigError as error:
        finding = problem_from_error(error, "model-unusable", remedy=otherwise)
        return HealthSection(
            name="language model", facts={"model": None, "usable": False}, findings=[finding]
        )
    if llm is None:
        return None
    reason = llm.problem()
    facts = {"model": f"{llm.name}/{llm.model}".rstrip("/"), "usable": not reason}
    findings = [model_unavailable("model-unusable", reason, otherwise=otherwise)] if reason else []
    return HealthSection(name="language model", facts=facts, findings=findings)


def model_unavailable(code: str, reason: str, *, otherwise: str) -> Finding:
    """Create the finding that a model is unavailable.

    Args:
        code: as in `Finding`.
        reason: the cause, and after a full stop or a colon the remedy.
        otherwise: remedy if the reason has none.
    """
    cause, _, remedy = _CAUSE_END.sub("\n", reason, count=1).partition("\n")
    return problem(code, f"{cause[:1].upper()}{cause[1:].rstrip('.')}.", remedy.rstrip(".") or otherwise)


def keys_section(variables: Iterable[str]) -> HealthSection:
    """Look for keys in environment variables; the keyring is not read, as that may show the user a prompt.

    A missing key is no finding, as it may not be needed. A malformed key, such as one with a line break, is a
    problem.

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
            findings.append(problem_from_error(error, "key-unusable", remedy="Copy it again."))
        else:
            (absent if key is None else present).append(variable)
    return HealthSection(name="keys", facts={"set": present, "not_set": absent}, findings=findings)


def language_model_variables() -> set[str]:
    """Return the environment variables with the keys of language model vendors."""
    from loom_core.llm.vendors import VENDORS

    return {row.key_variable for row in VENDORS.values() if row.key_variable and row.needs_key}
