"""Personal data (PII) in texts: e-mail addresses, phone numbers, cards, IBANs and ID numbers.

Each kind is found by its form, and by its checksum where it has one. Names, postal addresses, and numbers in
words are not found. `tests/unit/test_pii.py` measures it on sentences in Chinese and English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

__all__ = ["PII_KINDS", "PiiKind", "PiiMatch", "find_pii", "mask_pii"]

PiiKind: TypeAlias = Literal["id_number", "card", "iban", "email", "phone"]
"""`id_number`: 居民身份证 with its checksum, or a US social security number; `card`: a payment card with a
correct Luhn digit."""

PII_KINDS: tuple[PiiKind, ...] = get_args(PiiKind)
"""All kinds."""


@dataclass(frozen=True, slots=True)
class PiiMatch:
    """Personal data in a text.

    Attributes:
        kind: the kind.
        start: index of its first character.
        end: index after its last character.
    """

    kind: PiiKind
    start: int
    end: int


def find_pii(text: str, kinds: Collection[PiiKind] = PII_KINDS) -> list[PiiMatch]:
    """Find personal data in a text, in order, without overlaps.

    Args:
        text: the text.
        kinds: the kinds to find.
    """
    found: list[PiiMatch] = []
    for kind, forms in _FORMS.items():
        for pattern, is_valid in forms if kind in kinds else ():
            found += [
                PiiMatch(kind, *match.span())
                for match in pattern.finditer(text)
                if is_valid is None or is_valid(_SEPARATOR.sub("", match[0]))
            ]
            text = _without(text, found)
    return sorted(found, key=lambda each: each.start)


def _without(text: str, found: Sequence[PiiMatch]) -> str:
    """Return a text of the same length in which nothing is found again where something was."""
    letters = list(text) if found else []
    for each in found:
        letters[each.start : each.end] = "\0" * (each.end - each.start)
    return "".join(letters) or text


def mask_pii(text: str, kinds: Collection[PiiKind] = PII_KINDS) -> str:
    """Return a text with placeholders such as `[email]` in place of personal data.

    Args:
        text: the text.
        kinds: the kinds to replace.
    """
    pieces: list[str] = []
    at = 0
    for each in find_pii(text, kinds):
        pieces += text[at : each.start], f"[{each.kind}]"
        at = each.end
    return "".join((*pieces, text[at:]))


def _is_citizen_number(number: str) -> bool:
    """Whether the last character is the checksum of the others (GB 11643, ISO 7064 MOD 11-2)."""
    total = sum(int(digit) * 2 ** (17 - place) for place, digit in enumerate(number[:17]))
    return "10X98765432"[total % 11] == number[17].upper()


def _is_card(number: str) -> bool:
    """Whether the last digit of a number is its checksum (Luhn)."""
    doubled = (int(digit) * 2 for digit in number[-2::-2])
    return (sum(map(int, number[::-2])) + sum(each - 9 * (each > 9) for each in doubled)) % 10 == 0


def _is_iban(number: str) -> bool:
    """Whether the check digits fit (ISO 13616, MOD 97-10)."""
    return int("".join(str(int(each, 36)) for each in number[4:] + number[:4])) % 97 == 1


_SEPARATOR = re.compile(r"[ -]")

# Where matches overlap, the first form counts. In ASCII, so that digits next to Chinese characters begin and
# end a word; each is bounded.
_CITIZEN = (
    r"(?a)(?<!\w)[1-9]\d{5}[ -]?(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[ -]?\d{3}[\dXx](?!\w)"
)
_SOCIAL_SECURITY = r"(?a)(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])"
_CARD = (  # Visa, American Express, Mastercard and JCB, UnionPay and Discover
    r"(?a)(?<![\w-])(?:4\d{12}(?:\d{3}(?:\d{3})?)?|3[47]\d{13}|(?:5[1-5]|2[2-7]|35)\d{14}|6[0245]\d{14,17})"
    r"(?![\w-])"
)
_CARD_IN_GROUPS = r"(?a)(?<![\w-])(?:[2456]\d{3}|35\d\d)([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?(?![\w-])"
_AMERICAN_EXPRESS_IN_GROUPS = r"(?a)(?<![\w-])3[47]\d\d([ -])\d{6}\1\d{5}(?![\w-])"
_IBAN = r"(?a)(?<!\w)[A-Z]{2}\d\d(?: ?[A-Z\d]{4}){2,7}(?: ?[A-Z\d]{1,3})?(?!\w)"
_LABEL = r"[A-Za-z\d\u4e00-\u9fff]"
_EMAIL = rf"(?a)(?<![\w.+%'-])\w[\w.+%'-]{{0,63}}@(?:{_LABEL}(?:{_LABEL}|-){{0,62}}\.){{1,8}}[A-Za-z]{{2,24}}"
_INTERNATIONAL = r"(?a)(?<!\w)\+[1-9]\d{0,2}(?:[ .()-]{0,2}\d){6,13}(?!\w)"
_CHINESE_MOBILE = r"(?a)(?<![\w.-])(?:0086[ -]?)?1[3-9]\d(?:[ -]?\d{4}){2}(?![\w-])"
_WITH_AREA_CODE = r"(?a)(?<![\w.-])\(?0\d{2,4}[ )-]{1,2}\d{3,4}[ -]?\d{3,4}(?![\w-])"
_NORTH_AMERICAN = r"(?a)(?<![\w-])(?:1[-. ])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[-. ])\d{3}[-. ]\d{4}(?![\w-])"


def _forms(
    *patterns: str, is_valid: Callable[[str], bool] | None = None
) -> list[tuple[re.Pattern[str], Callable[[str], bool] | None]]:
    return [(re.compile(pattern), is_valid) for pattern in patterns]


_FORMS: Mapping[PiiKind, Sequence[tuple[re.Pattern[str], Callable[[str], bool] | None]]] = {
    "id_number": [*_forms(_CITIZEN, is_valid=_is_citizen_number), *_forms(_SOCIAL_SECURITY)],
    "card": _forms(_CARD, _CARD_IN_GROUPS, _AMERICAN_EXPRESS_IN_GROUPS, is_valid=_is_card),
    "iban": _forms(_IBAN, is_valid=_is_iban),
    "email": _forms(_EMAIL),
    "phone": _forms(_INTERNATIONAL, _CHINESE_MOBILE, _WITH_AREA_CODE, _NORTH_AMERICAN),
}
