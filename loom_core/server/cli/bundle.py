"""How a host that runs a server out of an MCPB bundle says what its user has chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["bundled_line"]

_REFERENCE = "${user_config."


def bundled_line(given: Sequence[str], *, options: Iterable[str]) -> list[str]:
    """The command line of a server in a bundle.

    Args:
        given: what the host gives, in the order of the manifest. What is not chosen it may leave as the
            reference to it, or as an empty text.
        options: those of `serve` that it is for, one for each.
    """
    chosen = (
        (option, value)
        for option, value in zip(options, given, strict=False)
        if value and not value.startswith(_REFERENCE)
    )
    return ["serve", *(part for pair in chosen for part in pair)]
