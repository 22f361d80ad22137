"""A report that people can paste into an issue: no keys, no tokens, and the home folder as `~`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from loom_core.keys import redacted
from loom_core.server.health import HealthReport, Section

__all__ = ["paste_safe"]

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_SHORTEST = 8  # characters; `1` and `true` are no secrets

_MARK = "[secret]"
# What looks like a secret wherever it stands: a bearer's token, what vendors' keys begin with, a password in
# a URL, and the value of a parameter whose name says it.
_PATTERNS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {_MARK}"),
    (
        re.compile(
            r"\b(?:(?:sk|pk|rk|gh[ops]|github_pat|glpat|xox[abps]|hf)[-_](?=[\w-]*\d)|AIza)[\w-]{16,}"
        ),
        _MARK,
    ),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]*@"), rf"\1{_MARK}@"),
    (
        re.compile(
            r"(?i)((?:api[-_]?key|token|secret|passw(?:or)?d)[\"']?\s*[=:]\s*[\"']?)(?!env:|keyring:)[^\s\"'&,;]{6,}"
        ),
        rf"\1{_MARK}",
    ),
)


def paste_safe(
    report: HealthReport, *, home: Path | None = None, environment: Mapping[str, str] | None = None
) -> HealthReport:
    """A report without what is nobody else's business, whoever has put it there.

    Names of knowledge bases, and of folders that are not under the home folder, stay.

    Args:
        report: what was found out.
        home: the user's home folder, which is written as `~`.
        environment: variables; the values of those whose names say that they are secret are left out.
    """
    redactor = _Redactor(home or Path.home(), _secrets(os.environ if environment is None else environment))
    sections = [redactor.section(section) for section in report.sections]
    return report.model_copy(update={"sections": sections})


def _secrets(environment: Mapping[str, str]) -> list[SecretStr]:
    return [
        SecretStr(value.strip())
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value.strip()) >= _SHORTEST and not Path(value).exists()
    ]


class _Redactor:
    def __init__(self, home: Path, secrets: Iterable[SecretStr]) -> None:
        folders = {str(home), str(home.resolve())} - {home.anchor}  # a user without one has `/`
        alternatives = "|".join(map(re.escape, sorted(folders, key=len, reverse=True)))
        # Not the beginning of another folder's name: /home/ann is no part of /home/anna.
        self._home = re.compile(rf"(?:{alternatives})(?![\w.-])") if folders else None
        self._secrets = list(secrets)

    def section(self, section: Section) -> Section:
        findings = [
            finding.model_copy(
                update={"message": self.text(finding.message), "remedy": self.text(finding.remedy)}
            )
            for finding in section.findings
        ]
        facts = {name: self.value(value) for name, value in section.facts.items()}
        return Section(name=self.text(section.name), facts=facts, findings=findings)

    def value(self, value: object) -> object:
        """A fact of any shape."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(entry) for entry in cast("list[object]", value)]
        if isinstance(value, dict):
            entries = cast("dict[str, object]", value).items()
            return {self.text(name): self.value(entry) for name, entry in entries}
        return value

    def text(self, text: str) -> str:
        """A text of any kind."""
        text = redacted(text, self._secrets)
        for pattern, mark in _PATTERNS:
            text = pattern.sub(mark, text)
        return self._home.sub("~", text) if self._home else text
