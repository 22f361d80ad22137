"""A report that people can paste into an issue: no keys, no tokens, and the home folder as `~`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from pydantic import SecretStr

from loom_core.keys import redacted
from loom_core.redaction import hide_assigned, hide_forms, secrets_in_environment
from loom_core.server.cli.health import HealthReport, Section

__all__ = ["paste_safe"]


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
    redactor = _Redactor(home or Path.home(), secrets_in_environment(environment))
    sections = [redactor.section(section) for section in report.sections]
    return report.model_copy(update={"sections": sections})


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
        text = hide_assigned(hide_forms(redacted(text, self._secrets)))
        return self._home.sub("~", text) if self._home else text
