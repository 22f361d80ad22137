"""`doctor`: which language model is set, and whether it can be asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.server.cli.health import Finding, Section, problem, told_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.llm.interface import LLMProvider

__all__ = ["model_section", "unasked"]

_CAUSE_END = re.compile(r"[.:] (?=\S)")


def model_section(language_model: Callable[[], LLMProvider | None], *, otherwise: str) -> Section | None:
    """Which model is set and whether it can be asked; None without one. May ask the keyring.

    Args:
        language_model: makes the model, or gives None where none is set.
        otherwise: what to do where what is wrong does not say so itself.
    """
    try:
        llm = language_model()
    except ConfigError as error:
        finding = told_by(error, "model-unusable", remedy=otherwise)
        return Section(name="language model", facts={"model": None, "usable": False}, findings=[finding])
    if llm is None:
        return None
    reason = llm.problem()
    facts = {"model": f"{llm.name}/{llm.model}".rstrip("/"), "usable": not reason}
    findings = [unasked("model-unusable", reason, otherwise=otherwise)] if reason else []
    return Section(name="language model", facts=facts, findings=findings)


def unasked(code: str, reason: str, *, otherwise: str) -> Finding:
    """The finding that a model cannot be asked.

    Args:
        code: as in `Finding`.
        reason: why, and behind a full stop or a colon what to do.
        otherwise: what to do where the reason does not say.
    """
    cause, _, remedy = _CAUSE_END.sub("\n", reason, count=1).partition("\n")
    return problem(code, f"{cause[:1].upper()}{cause[1:].rstrip('.')}.", remedy.rstrip(".") or otherwise)
