"""Writes docs/reference/command-line.md: every command of every server (`python -m tools.reference command`).

The page is made from the servers' parsers, and not from the text of `--help`, which Python's versions break
into lines in different ways.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from tools.provider_reference import table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"

_HEAD = """\
# Command line

Made by `python -m tools.reference` from the code; do not edit. `COMMAND --help` says the same.

Answers go to standard output, everything else to standard error. Options that most commands of a program
accept are listed once, under the program.
"""

_PACKAGES = ("loom_kb", "loom_query", "loom_agent", "loom_flow")

_MOST = 0.5  # of the commands of a program: what so many take is told once

_Options = dict[str, argparse.Action]


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for package in _PACKAGES:
        module = import_module(f"{package}.cli")
        parts += [*_program(module.SERVER.parser(), module.__doc__ or "")]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the commands of a parser, with those below them: `token create` as well as `token`."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                if command in found.values():  # an alias
                    continue
                found[name] = command
                found |= {f"{name} {inner}": each for inner, each in commands(command).items()}
    return found


def _program(parser: argparse.ArgumentParser, about: str) -> Iterator[str]:
    own = {name: command for name, command in commands(parser).items() if not commands(command)}
    usual = _usual(own)
    yield f"## {parser.prog}"
    yield _prose(parser.description or "")
    _, _, codes = about.partition("Exit codes:")
    yield f"Exit codes:{codes}".replace("\n", " ").strip()
    yield "The commands take, besides what stands with each of them:"
    yield table(
        _rows({key: action for key, (action, _) in usual.items()}, {k: w for k, (_, w) in usual.items()})
    )
    for name, command in own.items():
        yield f"### `{parser.prog} {name}`"
        yield _prose(command.description or "")
        options = {key: each for key, each in _options(command).items() if key not in usual}
        positional = [each for each in command._actions if not each.option_strings]
        if names := " ".join(_place(each) for each in positional):
            yield f"`{parser.prog} {name} {names}`"
        listed = {_word(each): each for each in positional} | options
        if listed:
            yield table(_rows(listed))
        if command.epilog:
            yield _prose(command.epilog)


def _usual(own: Mapping[str, argparse.ArgumentParser]) -> dict[str, tuple[argparse.Action, str]]:
    """Return the options that most commands take, each with a sentence on those that do not take it."""
    taken = {name: _options(command) for name, command in own.items()}
    found: dict[str, tuple[argparse.Action, str]] = {}
    for options in taken.values():
        for key, action in options.items():
            like = {
                name for name, others in taken.items() if key in others and others[key].help == action.help
            }
            if key not in found and len(like) >= _MOST * len(own):
                found[key] = action, _except(own, like)
    return found


def _except(own: Mapping[str, argparse.ArgumentParser], like: set[str]) -> str:
    """Return the sentence with the other commands; a command stands for its verbs if none takes it."""
    others: dict[str, None] = {}
    for name in own:
        first, space, _ = name.partition(" ")
        whole = space and not any(each.startswith(f"{first} ") for each in like)
        if name not in like:
            others[f"`{first} …`" if whole else f"`{name}`"] = None
    return f" (Not of {', '.join(others)}.)" if others else ""


def _options(command: argparse.ArgumentParser) -> _Options:
    return {
        action.option_strings[-1]: action
        for action in command._actions
        if action.option_strings and action.help is not argparse.SUPPRESS and action.dest != "help"
    }


def _rows(
    actions: Mapping[str, argparse.Action], added: Mapping[str, str] | None = None
) -> Iterator[tuple[str, ...]]:
    yield "argument", "meaning"
    for name, action in actions.items():
        values = _word(action) if action.option_strings and action.nargs != 0 else ""
        several = "yes" if isinstance(action, argparse._AppendAction) else ""
        again = " May be repeated." if several and "repeated" not in (action.help or "") else ""
        yield (
            f"`{' '.join(filter(None, (name, values)))}`",
            f"{_prose(_help(action))}{again}{(added or {}).get(name, '')}",
        )


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%")
    return text.replace("%(default)s", str(action.default))


def _word(action: argparse.Action) -> str:
    """Return the placeholder for the value of an argument."""
    if action.metavar:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    if action.choices is not None:
        return "|".join(str(choice) for choice in action.choices)
    return action.dest.upper().replace("_", "-") if action.option_strings else action.dest


def _place(action: argparse.Action) -> str:
    word = _word(action)
    return {"*": f"[{word} …]", "+": f"{word} …", "?": f"[{word}]", "...": f"[{word} …]"}.get(
        str(action.nargs), word
    )


def _prose(text: str) -> str:
    """Return a help text as a sentence; `$NAME` and `--option` as code."""
    text = re.sub(r"(?<![`\w-])(--[a-z][a-z-]*|\$[A-Z_]+)", r"`\1`", " ".join(text.split()))
    text = text.replace("<", "&lt;")
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "”", ")")) or not text else f"{text}."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
