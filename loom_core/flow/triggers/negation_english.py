"""What English words around a piece of business say of it: see `doubt`."""

from __future__ import annotations

import re

from loom_core.flow.triggers.place import Place

__all__ = ["SCRIPT", "is_asked_about", "is_mentioned", "is_negated", "negates"]

SCRIPT = re.compile("[A-Za-z]")
"""What it is written in."""

# --- negation ---
_NEUTRAL = re.compile(
    r"\b(?:(?:ca|wo|could|would)n['’]?t you|why (?:don['’]?t (?:you|we)|not)|"
    r"(?:don['’]?t|never) forget(?: to)?|"
    r"can['’]?t (?:wait|help but)|no (?:choice|option|way|alternative) but|not only|no problem|if not|"
    r"not (?:feeling|well|good|sure|in|available|able|at|here|working|coming|there))\b",
    re.I,
)
_NEGATION = re.compile(
    r"\b(?:(?:do|does|did|wo|would|ca|could|should|is|ai|was|are|have|has|had|must|need)n['’]?t|cannot|"
    r"not|never|no longer|no one|nobody|no|without|hate|"
    r"cancel(?:l?ing|led)?|stop|abort|undo|revoke|withdraw|forget|avoid|refuse|neither|nor|"
    r"(?:instead|rather) (?:of|than))\b",
    re.I,
)
_THINKING = re.compile(
    r"\W*(?:(?:really|actually|even|honestly)\W+)*(?:think|believe|feel|know|suppose|mean|say|said|guess|recall)\b",
    re.I,
)
_ATTACHED = re.compile(
    r"\W*(?:(?:really|actually|even|currently|yet|now|ever|just|in fact)\W+)*"
    r"(?:want|need|like|wish|plan|intend|have|care|going|trying|looking|here)?(?:ing)?\b",
    re.I,
)
# Who lets or asks somebody: what follows is negated as well.
_LEADS_ON = re.compile(
    r"\W*(?:(?:really|actually|ever|has|have|had|to)\W+)*"
    r"(?:let|make|allow|ask|tell|told|force|have|get|want|permit|authori[sz]e|expect|need|like)(?:s|ed|d|ing)?\W+"
    r"(?:me|you|him|her|us|them|anyone|anybody|my \w+)\b(?:\W+to\b)?",
    re.I,
)
_WISH = re.compile(
    r"\b(?:i(?:['’]d| would| really| still| just| do)* (?:want|need|like|have to|must|wish|got to)|"
    r"i['’]m|want|need|"
    r"please|(?:can|could|may) (?:i|you|we)|let me|let['’]s|have to|must|gotta)\b",
    re.I,
)
_ENDED = re.compile(
    r"\b(?:(?:is|are|was) (?:not|no longer)|isn['’]?t|aren['’]?t|not|no longer) "
    r"(?:needed|necessary|required|any ?more)|"
    r"\bcancel(?:led)?(?: (?:it|that|this))?\W*$|\bnever ?mind|\bno(?:t any)? ?more\W*$",
    re.I,
)
_TAKEN_BACK = re.compile(
    r"\b(?:never ?mind|forget (?:it|that|about it)|scratch that|cancel (?:it|that)|no wait|actually,? no|"
    r"on second thoughts?|just kidding|changed my mind)\b|"
    r"\b(?:or|maybe|perhaps|better|rather|actually|wait|hmm|oh)[\s,]+(?:(?:maybe|perhaps|rather|better)[\s,]+)?"
    r"(?:not|no|don['’]?t)\W*$|"
    r"(?:^|[,;.!?]\W*)(?:(?:please|oh|no|but|actually|ok(?:ay)?)\W+)?"
    r"(?:wait|hold on|not yet|don['’]?t(?: (?:submit|do|send|book)(?: it)?)?)"
    r"(?: (?:a|one) (?:second|sec|minute|moment))?(?: yet)?\W*$|"
    r"\?\W*(?:no(?: thanks?| way)?|never|nope|nah)\W*$",
    re.I,
)

# --- questions ---
_BEGINNING = 12  # characters of what fits in which a question may end
_ASKING = re.compile(
    r"\b(?:how (?:do|does|can|could|to|would|should|long|many|much|often)|why|"
    r"what (?:happens|if|do (?:i|we|you) need)|"
    r"when (?:do|does|can|should) \w+|where (?:do|can|should) (?:i|we)|who|"
    r"is there|are there|do (?:i|we|they|people|\w+s) (?:really )?(?:need|have)|"
    r"am i (?:allowed|eligible|entitled)|"
    r"should i|whether|"
    r"is it (?:really )?(?:safe|legal|ok|okay|fine|hard|difficult|easy|necessary|worth|wise|free|true|normal|"
    r"required|mandatory|allowed|a scam)|"
    r"(?:tell me|ask|asking|know more|question|questions|info|information)(?: more)? (?:on|about)|explain)\b|"
    r"^\W*should (?!you\b|we\b)\w+|\bwhat (?:is|are|does)(?: an?)?\W*$",
    re.I,
)
_ASKED = re.compile(
    r"\W*(?:(?:request|application|time|booking)\W+)?"
    r"(?:polic(?:y|ies)|process|procedure|rules?|requirements?|eligibility|balance|history|entitlement|mean)\b",
    re.I,
)

# --- mentions ---
_SUPPOSED = re.compile(
    r"\b(?:(?<!wondering )if (?:i|we)|if you(?! (?:could|can|would)\b)|suppose|already|previously|"
    r"i was (?:going|about|planning|supposed|told|asked|forced) to|did \w+|have (?:i|you|we)|"
    r"has \w+|tried to|it was|(?:i|you) did|(?:i|we) forgot(?: to)?|"
    r"i (?:took|requested|booked|applied|ordered|cancelled|asked))\b",
    re.I,
)
_CAME_OF_IT = re.compile(
    r"\W*(?:was|were|got|gets|had|fail(?:s|ed)?|bounced|did(?:n['’]?t)?|does(?:n['’]?t)?|won['’]?t|hasn['’]?t|isn['’]?t|"
    r"(?:has|have|is|are) (?:been|not|being|\w+ed))\b",
    re.I,
)
_OTHER = (
    r"(?:he|she|they|someone|somebody|everyone|everybody|anyone|people|(?:my|our|the|his|her|a) \w+)"
    r"(?:['’](?:s|d|ll))?(?: \w+ly| also| still| just| really)?"
)
_OTHER_WISHES = re.compile(
    r"\b(?:(?:wants|needs|asks|asked|told|tells|expects|requires|lets|allowed|made|makes|forces|forced)\b|"
    rf"{_OTHER} (?:want(?:ed)?|need(?:ed)?|would|wish|will|has to|have to|had to|should|can|must|may|might|"
    r"keeps?|said|asking|"
    r"(?:is|are|was|were) (?:going|trying|planning|asking|telling|forcing|making))\b)",
    re.I,
)

_SAYS = re.compile(
    rf"\b{_OTHER} (?:said|says?|told (?:me|us)|thinks?|insists?|expects?)(?: that)? (?:i|we|you)\b", re.I
)


def negates(text: str) -> bool:
    """Whether anything is negated in a text."""
    return bool(_NEGATION.search(_NEUTRAL.sub("·", text)))


def is_negated(place: Place) -> bool:
    """Whether it is not wanted, or taken back."""
    if place.holds_its_own(_NEGATION, _NEUTRAL) or _TAKEN_BACK.search(place.later):
        return True
    return bool(_ENDED.search(place.after)) or _negated_before(place.before, place.inside)


def _negated_before(before: str, inside: str) -> bool:
    before = _NEUTRAL.sub("·", before)
    for found in _NEGATION.finditer(before):
        between = before[found.end() :]
        if _THINKING.match(between):
            return True
        led = _LEADS_ON.match(between) or _ATTACHED.match(between)
        rest = between[led.end() :] if led else between
        begun = _WISH.search(f"{rest}{inside[:12]}")
        if begun is None or begun.start() > len(rest) or not rest.strip():
            return True
    return False


def is_asked_about(place: Place) -> bool:
    """Whether something about it is asked."""
    before = _NEUTRAL.sub("·", place.before)
    asking = _ASKING.search(f"{before}{place.inside[:_BEGINNING]}")  # "do I" in front, "need" within
    asks = bool(_ASKING.search(before) or (asking and asking.start() < len(before)))
    return asks or bool(_ASKED.match(place.after))


def is_mentioned(place: Place) -> bool:
    """Whether it is done already, or only might be, or is what somebody else wants."""
    if _SUPPOSED.search(place.before) or _CAME_OF_IT.match(place.after):
        return True
    if _SAYS.search(place.before):
        return True
    others = list(_OTHER_WISHES.finditer(place.before))
    return bool(others) and not _WISH.search(place.before, others[-1].end())
