"""Relations that the sentences and the layout of a passage state about the entities in it.

A sentence is read entity by entity. The words between two entities name a predicate (`statements`); the words
around them decide whether it holds: a question, a condition, a negation, a subject that depends on a
preposition, or an object that only qualifies the next noun state nothing. Enumerations repeat a statement,
and a second verb takes the subject of the first. Layout states relations without a verb: the options below a
command, the parameters of a signature, "Returns" below what is documented.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from loom_core.cjk import has_cjk
from loom_core.knowledge.ingest.extraction.statements import find_pattern
from loom_core.knowledge.model import Mention, Relation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom_core.knowledge.ingest.extraction.statements import Pattern

__all__ = ["is_vague", "layout_relations", "sentence_relations"]

_CONFIDENCE = 0.6
_MAX_BETWEEN = 70  # characters between two entities that may still be one statement
_AFTER = 40  # characters after an entity that are looked at
_CODE = frozenset({"api", "command", "option", "config", "env", "error", "file"})

_OPENING_QUOTES, _CLOSING_QUOTES = ('"', "“"), ('"', "”")
_OPENING, _CLOSING = ("(", "（"), (")", "）")
_QUESTION = ("?", "？")
_ENUMERATION = re.compile(
    r"[`*\"”’』」》]*(?:\(\d?[a-z]{0,2}\)[`*]*)?"
    r"\s*(?:、|,\s*(?:(?:and|or)\b)?|，|\b(?:and|or)\b|和|与|及|以及|或者?)\s*(?:the |an? )?[`*\"“‘『「《]*"
)
_LAST_OF_ENUMERATION = re.compile(r"\b(?:and|or)\b|[和与及或、]")
_AND_MORE = re.compile(r"[`*\"”’』」》]*\s*(?:[、,，]?\s*(?:等|etc))")
_AND_VERB = re.compile(
    r"\)?[`*\"”]*(?:,? (?:and|but)(?: also| it)? |,? which (?:also )?|, (?=\w+(?:s|ed|t|n) )|"
    r"[，,]?(?:并且?|而且|且|同时|也|还)|[\u4e00-\u9fff]{0,4}[，,])"
)
_RELATIVE = re.compile(r"^ ?(?:that|which|who) ")
_RESUMED = re.compile(
    r".*?[,;.] (?:(?:and|but|because|then|so|where) )*"
    r"(?:it|he|she|they|the (?:function|method|call|command|class|program)) ",
    re.DOTALL,
)
"""Words after which a statement is about an entity before them: "because he", "then the function"."""
_SHORTEST_RESUMED = 5  # characters: ", it "
_NEXT_OPTION = re.compile(r"[`\"“”]*[ =]?(?:[\w./<>\[\]'\"*=-]{1,20})?[`\"“”]*(?:[ ,|]+| and | or )[`\"“]*")
_DEFINES_ALIAS = frozenset({'("', "(“", "（“", "（「"})
_PLURAL_VERB = re.compile(
    r" *(?:\w+ )?(?:are|were|have|support|use|require|need|implement|depend|accept|apply)\b|"
    r"[都均]|,? (?:and|or) other"
)

_HYPOTHETICAL = re.compile(
    r"\b(?:if|which|whose|how|what|when|whenever|whether|unless|until|once|suppose|assuming|would|could|might|"
    r"no|neither|none|nor|never|not)\b|如果|假如|假设|倘若|若|当.*时|是否|除非|一旦|要是|无论|不管",
    re.IGNORECASE,
)
_CLAUSE_START = re.compile(r"[,;:，；：(（\n—]")
_GOVERNED = re.compile(
    r"(?:(?<!call )(?<!calls )\b(?:of|in|on|at|by|with|from|to|for|into|via|using|through|between|about|than|"
    r"under|like|without|per|as|within|against|including)(?: (?:the|an?|its|your|this|that|each|any|all))?"
    r"(?: [a-z-]+)?\s[`*\"“]*|"
    r"(?<![现存所])[在对从用以把将被由向给跟][\u4e00-\u9fff]{0,2}|使用|通过|根据|对于)[`*\"“《「\s]*$",
    re.IGNORECASE,
)
_VERBLESS = re.compile(
    r"\s*(?:[`*\"”(]*\s*$|return\b|import\b|[,(=:（，：]|of\b|in\b|at\b|for\b|from\b|(?:options?|flags?|switch|"
    r"parameters?|arguments?|attributes?|fields?|keywords?|propert|methods?|members?|columns?)\b|的|选项|参数|"
    r"such as|named|called|'s)"
)
_FREE = frozenset({"has option", "has parameter", "located in", "dated", "works for", "part of"})
"""Predicates whose object may be followed by any word."""
_IN_GRAMMAR = re.compile(r"\s*[|(]")  # "request = first | second"
_GENERIC_HEAD = (
    r"protocols?|librar(?:y|ies)|formats?|databases?|packages?|commands?|files?|options?|modules?|functions?|"
    r"classes|class|methods?|variables?|standards?|systems?|interfaces?|extensions?|types?|servers?|tools?|"
    r"programs?|algorithms?|syntax|languages?|exceptions?|errors?|objects?|fields?|parameters?|settings?"
)
_NAME_END = r"(?:\(\d?[a-z]{0,2}\))?[`*\"”’]*"
_PHRASE_END = re.compile(
    rf"{_NAME_END}(?:\s*(?:$|[.,;:!?)(（）。，；：、！？》」\]|/]|[–—])|\n|\s+(?:and|or|that|which|who|where|when|"
    r"while|if|as|in|on|at|by|for|from|to|with|of|is|are|was|were|has|have|will|can|may|must|but|so|because|"
    r"since|using|via|into|instead|rather|than|itself|only|directly|internally|used|written|unless|referring|"
    r"containing|describing|representing|indicating|associated|through|during|before|after|without|under|"
    rf"{_GENERIC_HEAD})\b|\s*(?:来|以|和|或|与|及|等|并|而|用于|作为|进行|命令|选项|函数|软件包|协议|格式|文件|"
    r"参数|程序|工具|库|变量|中|时|后|但|且))"
)
_DEFINITION_END = re.compile(
    rf"{_NAME_END}(?:\s*(?:$|[.,;:!?)(（）。，；：！？》」]|[–—])|\n|\s+(?:that|which|who|where|for|used|written|"
    r"designed|developed|created|in|on|by|from|to|with|of|and|based|provided|or|when|intended|containing|"
    r"consisting|whose|as|at|using|such)\b)"
)
_PHRASE_WORD = (
    r"(?!(?:for|of|in|from|by|with|to|on|at|as|and|or|that|which|who|about|used|directed|"
    r"written|designed|developed|created|based|provided|made|located|born|known|founded|released|published|"
    r"called|named)\b)[A-Za-z][\w-]*"
)
_IS_A = re.compile(
    rf"{_NAME_END}(?: \([^()]{{1,60}}\))?,? (?:is|was) an? "
    rf"(?P<what>(?:{_PHRASE_WORD}[ \n]){{1,3}}(?=[a-z]){_PHRASE_WORD})"
    r"(?=[.,;:)]|\s+(?:that|which|who|for|used|written|designed|developed|created|based|provided|whose|about|"
    r"directed|in|from|by)\b)"
)
_IS_A_CHINESE = re.compile(
    r"[`*'\"”’》」]?(?:\(\d\w*\))?\s?(?:[（(][^（）()]{1,60}[）)])?(?:就是|是)一[种个款类项套组]"
    r"(?P<what>[^，。；：（）()、\s]{2,30})(?=[，。；（(,]|$)"
)
_KIND = re.compile(
    rf"{_NAME_END} ?(?P<what>environment variable|system call|configuration variable|library function|"
    r"环境变量|系统调用)(?!s\b| ?(?:name|file|value)s?\b)"
)
_PLACE_END = re.compile(r"\s*(?:[,.;:)\n]|$)")
_NEXT_KIND = re.compile(r",? (?:and|or|an?) ")
_VAGUE = re.compile(
    r"\b(?:good|bad|new|different|similar|better|common|simple|useful|special|single|valid|certain|way|thing|"
    r"example|choice|idea|list|set|number|part|case|problem|result|fact|reason|place|lot|bit|same|time|day|not|"
    r"also|of|the|no|very|more|most|few|real|matter|to|in|for|as|on|by|with|that|\w+ing$)\b|"
    r"[的不最这那哪何]$|方法$|问题$|例子$"
)
"""Words of an object that would say nothing: "is a good choice"."""


class _Statement(NamedTuple):
    subject: int  # index of a mention
    predicate: str
    is_inverse: bool


def is_vague(object_: str) -> bool:
    """Whether "X is a Y" would say nothing: "is a good choice"."""
    return _VAGUE.search(object_) is not None


def sentence_relations(text: str, start: int, end: int, mentions: Sequence[Mention]) -> list[Relation]:
    """Return what a sentence states about the entities in it.

    Args:
        text: the passage.
        start: offset of the sentence.
        end: offset after it.
        mentions: the entities in the sentence, in order.
    """
    if not mentions or text.endswith(_QUESTION, start, end):
        return []
    return _SentenceReader(text, start, end, mentions).read()


class _SentenceReader:
    """Reads a sentence from entity to entity and remembers its last statement."""

    def __init__(self, text: str, start: int, end: int, mentions: Sequence[Mention]) -> None:
        self._text, self._start, self._end = text, start, end
        self._mentions = mentions
        self._gaps = ["", *(text[one.end : other.start] for one, other in pairwise(mentions))]
        self._is_chinese = has_cjk(text[start:end])
        self._last: _Statement | None = None
        self._bracketed = 0  # index of the entity before the last opening bracket

    def read(self) -> list[Relation]:
        """Return the relations."""
        found = self._untagged()
        for i in range(1, len(self._mentions)):
            gap = self._gaps[i]
            if gap.rstrip().endswith(_OPENING):
                self._bracketed = i - 1
            resumed = _RESUMED.match(gap) if len(gap) > _SHORTEST_RESUMED else None
            if len(gap) > _MAX_BETWEEN and not resumed:
                self._last = None
                continue
            stated = self._resume(i, resumed) if resumed else (self._continue(i) or self._begin(i))
            if stated is not None:
                self._last = stated
                found += self._relations(i, stated)
            elif not _ENUMERATION.fullmatch(gap):
                self._last = None
        return found

    def _continue(self, i: int) -> _Statement | None:
        """Read a second verb, or what an object is, as a statement about the last subject."""
        last, gap, object_ = self._last, self._gaps[i], self._mentions[i]
        if last is None:
            return None
        if last.predicate == "has option" and object_.type == "option" and _NEXT_OPTION.fullmatch(gap):
            return last
        verb = _AND_VERB.match(gap)
        words = _RELATIVE.sub(" ", gap[verb.end() :] if verb else gap)
        if not words or (_VERBLESS.match(words) if verb else last.predicate != "is a"):
            return None
        said = self._find(words, last.subject, i)
        return _Statement(last.subject, said.predicate, said.is_inverse) if said else None

    def _resume(self, i: int, resumed: re.Match[str]) -> _Statement | None:
        """Read "…, then it returns X"."""
        subject = _resumed_subject(self._mentions[:i], resumed[0])
        # "It" may be what the sentence begins with.
        if subject is None or (resumed[0].endswith((" it ", " they ")) and not self._begins_with(subject)):
            return None
        return self._state(self._gaps[i][resumed.end() :], subject, i)

    def _begin(self, i: int) -> _Statement | None:
        gap, subject = self._gaps[i], i - 1
        if gap.startswith(_CLOSING) and self._bracketed < subject:
            gap, subject = gap[1:], self._bracketed
        if gap.strip() in _DEFINES_ALIAS and self._text.startswith(
            ('")', "”)", "”）", "」）"), self._mentions[i].end
        ):
            return _Statement(subject, "alias of", True)
        if self._mentions[subject].type == self._mentions[i].type == "place" and self._is_place_in_place(i):
            return _Statement(subject, "located in", False)
        return self._state(gap, subject, i)

    def _state(self, words: str, subject: int, i: int) -> _Statement | None:
        """Read the words between two entities, unless the words before them make it no statement."""
        said = self._find(words, subject, i)
        if said is None:
            return None
        place = self._mentions[subject].start
        if said.predicate not in {"returns", "raises"} and self._is_hypothetical(place):
            return None
        if words.startswith(", a") and self._lists_kinds(place, i):
            return None
        is_apposition = said.predicate in {"is a", "dated"} and not said.is_inverse
        if (is_apposition or not _VERBLESS.match(words)) and self._is_governed(subject):
            return None
        return _Statement(subject, said.predicate, said.is_inverse)

    def _lists_kinds(self, place: int, i: int) -> bool:
        """Whether "a console, a terminal, or …" enumerates what is no apposition."""
        return (
            self._text.endswith((" a ", " an "), 0, place)
            or _NEXT_KIND.match(self._text, self._mentions[i].end) is not None
        )

    def _find(self, words: str, subject: int, i: int) -> Pattern | None:
        object_ = self._mentions[i]
        after = self._text[object_.end : min(self._end, object_.end + _AFTER)]
        type_ = self._mentions[subject].type
        said = find_pattern(words, type_, object_.type, after, is_chinese=self._is_chinese)
        if said and said.predicate == "is a" and not any(map(str.isalpha, object_.name)):
            return None
        # `uses a "virtual" package`: a quotation is an object as a whole.
        if words.endswith(_OPENING_QUOTES) and not any(quote in after[:2] for quote in _CLOSING_QUOTES):
            return None
        return said if said and _holds_before(after, said) else None

    def _relations(self, i: int, stated: _Statement) -> Iterator[Relation]:
        """Yield the relation of a statement, once for each entity of an enumeration at either end."""
        firsts, seconds = [stated.subject], [i]
        if stated.subject == i - 1 and _PLURAL_VERB.match(self._gaps[i]):
            firsts = self._enumerated_before(stated.subject)
        if stated.predicate != "is a" or stated.is_inverse:
            seconds = _enumerated_after(self._text, self._end, self._mentions, i)
        for first in firsts:
            for second in seconds:
                one, other = self._mentions[first], self._mentions[second]
                if one.name != other.name:
                    ends = (other, one) if stated.is_inverse else (one, other)
                    yield _relation(ends[0].name, stated.predicate, ends[1].name, one.start, other.end)

    def _enumerated_before(self, last: int) -> list[int]:
        first = self._first_of_enumeration(last)
        while self._mentions[first].type != self._mentions[last].type:
            first += 1
        gaps = self._gaps[first + 1 : last + 1]
        return list(range(first, last + 1)) if any(map(_LAST_OF_ENUMERATION.search, gaps)) else [last]

    def _first_of_enumeration(self, last: int) -> int:
        while last > 0 and _ENUMERATION.fullmatch(self._gaps[last]):
            last -= 1
        return last

    def _is_hypothetical(self, place: int) -> bool:
        """Whether the clause up to a place is a condition, a possibility or a negation."""
        before = self._text[max(self._start, place - 80) : place]
        return _HYPOTHETICAL.search(_CLAUSE_START.split(before)[-1]) is not None

    def _is_governed(self, subject: int) -> bool:
        """Whether an entity depends on a preposition, so that it is not the subject of the next verb."""
        place = self._mentions[self._first_of_enumeration(subject)].start
        return _GOVERNED.search(self._text, max(self._start, place - 40), place) is not None

    def _is_place_in_place(self, i: int) -> bool:
        """Whether two places are like "Heidelberg, Germany", not like "Heidelberg, Berlin and Hamburg"."""
        mentions, gaps = self._mentions, self._gaps
        if gaps[i] not in {", ", ",\n"} or not mentions[i - 1].name.replace(" ", "").isalpha():
            return False
        pairs = [k for k in (i - 1, i + 1) if 0 < k < len(gaps) and _ENUMERATION.fullmatch(gaps[k])]
        if not _PLACE_END.match(self._text, mentions[i].end):
            return False
        return not any(mentions[k - 1].type == mentions[k].type == "place" for k in pairs)

    def _begins_with(self, k: int) -> bool:
        """Whether the sentence begins with an entity, at most after an article."""
        before = self._text[self._start : self._mentions[k].start]
        return before.strip(' \t\n`*"“‘《「-•').lower() in _BEFORE_SUBJECT

    def _untagged(self) -> list[Relation]:
        """Return statements "X is a Y" whose object needs no tag, as its words alone show where it ends."""
        text, mentions, end = self._text, self._mentions, self._end
        first = mentions[0]
        found = [
            _relation(m.name, "is a", kind["what"], m.start, kind.end("what"), "definition")
            for m in mentions
            if m.type in _CODE and (kind := _KIND.match(text, m.end, end))
        ]
        match = (_IS_A_CHINESE if self._is_chinese else _IS_A).match(text, first.end, end)
        if (
            match is None
            or text[self._start : first.start].strip(' \t\n`*"“‘《「-•').lower() not in _BEFORE_SUBJECT
        ):
            return found
        what = match["what"].rpartition("的")[2] if self._is_chinese else " ".join(match["what"].split())
        if len(what) > 1 and not is_vague(what) and all(m.end != match.end("what") for m in mentions):
            found.append(_relation(first.name, "is a", what, first.start, match.end("what"), "definition"))
        return found


_BEFORE_SUBJECT = frozenset({"", "the", "a", "an", "if", "when"})


def _relation(
    subject: str, predicate: str, object_: str, start: int, end: int, method: str = "between"
) -> Relation:
    return Relation(subject, predicate, object_, start, end, method, _CONFIDENCE)


def _enumerated_after(text: str, end: int, mentions: Sequence[Mention], first: int) -> list[int]:
    """Return the entities of the enumeration that begins with one: "A, B and C"."""
    last, is_closed, gap = first, False, ""
    while last + 1 < len(mentions) and not is_closed and _alike(mentions[first], mentions[last + 1]):
        between = text[mentions[last].end : mentions[last + 1].start]
        if not _ENUMERATION.fullmatch(between):
            break
        last, gap = last + 1, between
        is_closed = "、" not in gap and _LAST_OF_ENUMERATION.search(gap) is not None
    if last == first:
        return [first]
    is_closed = is_closed or "、" in gap or _AND_MORE.match(text, mentions[last].end, end) is not None
    # "A supports B, C and D do not": an enumeration ends with its phrase.
    if is_closed and _PHRASE_END.match(text[mentions[last].end : min(end, mentions[last].end + _AFTER)]):
        return list(range(first, last + 1))
    return list(range(first, last)) if last - first > 1 else [first]


def _alike(one: Mention, other: Mention) -> bool:
    return one.type == other.type or {one.type, other.type} <= _CODE


def _holds_before(after: str, said: Pattern) -> bool:
    """Whether an entity before a text is an object by itself, and does not qualify the next noun."""
    if said.after:
        return True
    if said.predicate == "has value" and _IN_GRAMMAR.match(after):
        return False
    if said.predicate in _FREE:
        return not after.startswith(("-", "的") if said.predicate == "part of" and said.is_inverse else "-")
    return (_DEFINITION_END if said.predicate in {"is a", "alias of"} else _PHRASE_END).match(
        after
    ) is not None


def _resumed_subject(mentions: Sequence[Mention], words: str) -> int | None:
    """Return the entity that a pronoun or "the function" means, if only one may be meant."""
    fitting = range(len(mentions))
    if " the " in words[-14:]:
        fitting = [k for k in fitting if mentions[k].type in {"api", "command"}]
    elif words.endswith((" he ", " she ")):
        fitting = [k for k in fitting if mentions[k].type == "person"]
    return fitting[-1] if len({mentions[k].name for k in fitting}) == 1 else None


# -- layout ---------------------------------------------------------------------------------------------

_LINE_START = re.compile(
    r"[ \t*+•·>`\"“-]*(?:\.\. [\w:-]+::[ \t]*|(?:usage|Usage|用法)[:：][ \t]*|\$ )?[`*\"“]*"
)
_SIGNATURE_START = re.compile(
    r"[ \t]*(?:[-*+•][ \t]+|\.\. [\w:-]+::[ \t]*)?(?:(?:class|def|function|async|static|const|final|new|int|"
    r"void|char|bool|extern|exception|[\w.:]+ \*?)[ \t]*){0,3}[`*]*(?:[\w]+\.)*"
)
_SECTION = re.compile(
    r"^[ \t#*:]*(?:(?P<parameters>Parameters?|Arguments?|Args|Params|Attributes|Keyword Arguments|"
    r"参数|参数说明|属性|字段)|"
    r"(?P<errors>Raises|ERRORS|Exceptions?|Throws|异常|错误))[*]*[ \t]*[:：]?[*]*[ \t]*$",
    re.MULTILINE,
)
_SPHINX_FIELD = re.compile(
    r":(?:(?P<parameter>param|arg|keyword|type)|(?P<error>raises?|exception))(?: \w+)? [`*]*$"
)
_ITEM_END = re.compile(r"[`*\"]*(?:[ \t]*(?:\(|:|：|–|—|-{1,2} |\n|$|\[|=|<)|  |\t)")
_HEAD_END = re.compile(r"[`*\"”]*(?:\(|[ \t]*(?:$|\n|[-–—]{1,2}[ \t]|[:：]|,[ \t]|\[|<|=))")
_NAME_LINE = re.compile(r"[`*]*(?:\(\d\w*\))?[ \t]+(?:[-–—]{1,2})[ \t]+\S")
_OPTION_JOINT = re.compile(
    r"[ \t]*(?:,|/|\|| or |或)[ \t]*|(?:[ =]?[<\[]?[\w.-]+[>\]]?)?(?:,[ \t]*|[ \t]*\|[ \t]*)"
)
_USAGE_JOINT = re.compile(r"[^\n;。！？]{0,40}(?:\n[ \t]+\[?)?[\[<|(]*")
_COMMAND_TITLE = re.compile(r"(?P<name>[a-z][a-z0-9_.+]*(?:-[a-z0-9_.+]+){0,4})(?P<page>\(\d\w*\))?")
_LEAD = re.compile(
    r"[ \t*•-]*(?:"
    r"(?P<uses>Uses|[A-Z][a-z]+e (?:[a-z]+ ){0,3}using)|"
    r"(?P<documented_in>See(?: also)?|参见|参看|请参阅|详见)|"
    r"(?P<returns>:?[Rr]eturns?:?|返回(?:值)?[:：]?(?:为|一个)?)|"
    r"(?P<raises>(?:May |Can )?[Rr]aises?:?|Throws:?|(?:抛出|引发)(?:一个)?)|"
    r"(?P<has_value>(?:The )?[Dd]efault(?:s to|(?: value)?(?: is|:))|默认(?:值)?(?:为|是|[:：])|"
    r"(?:Valid|Possible|Allowed|Supported|Accepted) (?:\w+ )?(?:values |options )?(?:are|is|include)?:?|"
    r"(?:可选|可取|有效)值(?:为|是|有|包括|[:：]))|"
    r"(?P<deprecated_by>Deprecated(?: since [^,;.:]{1,24}(?:\.\d+)*)?[,;.:]+ ?(?:[Pp]lease )?"
    r"(?:[Uu]se|in favou?r of|replaced by)|"
    r"(?:已弃用|已废弃|已过时)[，,。；：:]?(?:请)?(?:使用|改用))|"
    r"(?P<alias_of>(?:An? )?(?:[Aa]lias|[Ss]ynonym|[Ss]horthand) (?:for|of)|[Ss]hort for|[Ss]ame as|"
    r"[Ee]quivalent to|Identical to|等价于|等同于|相当于)|"
    r"(?P<part_of>Part of)|(?P<implements>Implements|实现了)|(?P<requires>Requires|Depends on|依赖于)|"
    r"(?P<supports>Supports)|(?P<extends>Bases:|Extends|Inherits from|继承自)|"
    r"(?P<replaces>Replaces|Supersedes)"
    r")(?=[ \t:：\u4e00-\u9fff`]|$)"
)
_LONGEST_LINE_START = 200  # characters before an entity in its line that are looked at
_LONGEST_LEAD = 70
_DETERMINER = re.compile(
    r"[ \t]*(?:an?|the|其|一个)?[ \t]*(?:(?:an?|new|the|instance of|object of|list of|opaque)[ \t]+){0,3}"
    r"(?::(?:\w+:)?\w+:)?[`*\"“~]*"
)
_TYPE = (
    r"(?:text|int|integer|bigint|smallint|boolean|bool|char|float\d?|double|numeric|reg\w+|ts(?:query|vector)|oid|"
    r"name|record|jsonb?|any\w+|timestamp\w*|interval|date|bytea|void|long|short|unsigned|const|struct|str|string|object|"
    r"bytes|ARRAY|OUT|INOUT|IN|VARIADIC|list|dict|tuple|set|cstring|internal|xid\d?|tid|"
    r"[A-Za-z]\w*_t|[A-Z]\w*(?= ?\*))"
)
_KEYWORD, _BEFORE_KEYWORD = re.compile(r"\s?=\s?[^=\s]"), re.compile(r"[(,]\s*$")
_IS_TYPED = re.compile(rf"\b{_TYPE}\b")
_CALL = re.compile(r"[(,]\s*(?:[\"'&]|\w+\()")
_IN_CODE = re.compile(r"\b[A-Z]{3,}\b|[=>#&]")
_IS_TYPE = re.compile(_TYPE)
_BEFORE_PARAMETER = re.compile(
    rf"(?:[(,\[]\s*|[\s\[(]\*{{1,2}}|\b{_TYPE}[ \t]+\*{{0,2}}|\b(?:VARIADIC|OUT|INOUT|IN) |\u200b)$"
)
_AFTER_PARAMETER = re.compile(rf"\s*(?:[,=)\]:\[]|{_TYPE}\b(?!\()|$)")
_OPTION_NOUN = re.compile(r"[`\"”’*]* ?(?:options?|flags?|switch|parameter|选项|参数)\b")
_CITATION = re.compile(
    r"(?:依照|按照|根据|依据|参照|违反|适用|pursuant to|in accordance with|under|referred to in|set out in|"
    r"subject to)[ \t]*(?:本法|the )?(?:《[^《》]{1,20}》|《)?$"
)
_SQL_TITLE = re.compile(r"[A-Z]{2,}(?: [A-Z]{2,}){0,4}")
_EXCEPTED = re.compile(r"[`*\"”]*,? (?:but|except)\b")
_PAGE = re.compile(r"[`*]*\(\d")
_NEAR = 300  # characters from what the lines are about to a sentence about it
_CODE_NAME = re.compile(r"[`*]*([A-Za-z][\w-]*(?:[._:][\w-]+)+|\w+(?=\(\)))(?:\(\))?[`*]*")


def layout_relations(text: str, mentions: Sequence[Mention], *, title: str, heading: str) -> list[Relation]:
    """Return what the layout of a passage states: its lines, lists, signatures and labels.

    Args:
        text: the passage.
        mentions: the entities in it, in order.
        title: title of its document.
        heading: the nearest heading above it.
    """
    if not mentions:
        return []
    reader = _LayoutReader(text, mentions, title, heading)
    reader.read()
    return reader.found


class _LayoutReader:
    """Reads a passage line by line and remembers what the lines are about."""

    def __init__(self, text: str, mentions: Sequence[Mention], title: str, heading: str) -> None:
        self._text, self._mentions = text, mentions
        self.found: list[Relation] = []
        self._command = _documented_command(mentions, title, heading)
        code = _CODE_NAME.fullmatch(heading) or _CODE_NAME.fullmatch(title)
        # What the lines are about, and its type and place.
        self._topic, self._topic_type = (code[1], "api") if code else ("", "")
        if not code and _SQL_TITLE.fullmatch(title):
            self._topic, self._topic_type = title, "command"
        self._topic_end = 0

    def read(self) -> None:
        text, mentions = self._text, self._mentions
        sections = [(m.start(), m.lastgroup or "") for m in _SECTION.finditer(text)]
        section = ""
        i = 0
        while i < len(mentions):
            mention = mentions[i]
            while sections and sections[0][0] < mention.start:
                section = sections.pop(0)[1]
            line = text.rfind("\n", 0, mention.start) + 1
            before = text[max(line, mention.start - _LONGEST_LINE_START) : mention.start]
            if before:
                self._read_lead(before, i)
            if mention.type == "option" and before.strip() and _OPTION_NOUN.match(text, mention.end):
                self._read_option_in_text(i)
            elif mention.type == "clause" and before.strip():
                if _CITATION.search(before):
                    self._add(mention, "refers to", types={"clause"})
            elif before.endswith((" ", "`", "*")) and (field := _SPHINX_FIELD.search(before)):
                self._add(mention, "has parameter" if field["parameter"] else "raises")
            elif _LINE_START.fullmatch(before):
                i = self._read_line(i, section)
            elif text.startswith("(", mention.end) and mention.type in {"api", "command"}:
                i = self._read_signature(i)
            i += 1

    def _read_line(self, i: int, section: str) -> int:
        """Read a line that begins with an entity; return the last entity read."""
        mention, text = self._mentions[i], self._text
        if mention.type == "option":
            return self._read_options(i)
        if section and mention.type in {"api", "error", "config"} and _ITEM_END.match(text, mention.end):
            is_parameter = section == "parameters" and mention.type != "error"
            if is_parameter or (section == "errors" and mention.type == "error"):
                self._add(mention, "has parameter" if is_parameter else "raises")
                return i
        if mention.type == "clause":
            self._begin(mention)
        elif (
            section != "parameters"
            and mention.type in _CODE
            and (_HEAD_END.match(text, mention.end) or _NAME_LINE.match(text, mention.end))
        ):
            self._begin(mention)
            if mention.type in {"api", "command"} and text.startswith("(", mention.end):
                return self._read_signature(i)
        if mention.type == "command":
            is_name = _NAME_LINE.match(text, mention.end) is not None
            if is_name:
                self._command = mention.name
            return self._read_usage(i)
        return i

    def _begin(self, mention: Mention) -> None:
        self._topic, self._topic_type, self._topic_end = mention.name, mention.type, mention.end

    def _read_options(self, i: int) -> int:
        """Read a line such as `-f, --force <level>` below the heading of a command."""
        first = last = i
        mentions, text = self._mentions, self._text
        if not _ITEM_END.match(text, mentions[i].end) and not _OPTION_JOINT.match(text, mentions[i].end):
            return i
        while last + 1 < len(mentions) and mentions[last + 1].type == "option":
            if not _OPTION_JOINT.fullmatch(text, mentions[last].end, mentions[last + 1].start):
                break
            last += 1
        for mention in mentions[first : last + 1] if self._command else ():
            self._relate(self._command, "has option", mention)
        short, long = mentions[first], mentions[last]
        if last == first + 1 and not short.name.startswith("--") and long.name.startswith("--"):
            self._relate(short.name, "alias of", long, start=short.start)
        self._topic, self._topic_type, self._topic_end = long.name, "option", long.end
        return last

    def _read_option_in_text(self, i: int) -> None:
        """Read "with the -X option" as an option of the last command before, unless one is named after it."""
        option, text = self._mentions[i], self._text
        start = max(
            text.rfind(". ", 0, option.start),
            text.rfind("\n\n", 0, option.start),
            text.rfind("。", 0, option.start),
        )
        commands = [m for m in self._mentions if m.type == "command" and m.start > start - _NEAR]
        before = [m for m in commands if m.end <= option.start]
        if before and not any(option.end <= m.start < option.end + 60 for m in commands):
            self._relate(before[-1].name, "has option", option, start=before[-1].start)

    def _read_usage(self, i: int) -> int:
        """Read a line such as `git stash push [-p | --patch] [-q]`."""
        mentions, text, last = self._mentions, self._text, i
        while last + 1 < len(mentions) and mentions[last + 1].type == "option":
            gap = text[mentions[last].end : mentions[last + 1].start]
            if not _USAGE_JOINT.fullmatch(gap) or (
                " | " in gap and "[" not in gap and "(" not in gap and last == i
            ):
                break
            last += 1
        is_usage = last > i and "[" in text[mentions[i].end : mentions[last].end]
        if not is_usage:
            return i
        for option in mentions[i + 1 : last + 1]:
            self._relate(mentions[i].name, "has option", option)
        return last

    def _read_signature(self, i: int) -> int:
        """Read the parameters of `open(path, mode='r')`."""
        mentions, text = self._mentions, self._text
        owner = mentions[i]
        end = _closing(text, owner.end)
        line = text.rfind("\n", 0, owner.start) + 1
        is_call = (
            _CALL.search(text[owner.end : end]) is not None
            or _IN_CODE.search(text[line : owner.start]) is not None
            or not _SIGNATURE_START.fullmatch(text, line, owner.start)
            or (text.startswith(";", end + 1) and not _IS_TYPED.search(text, owner.end, end))
        )
        if not is_call:
            self._begin(owner)
        last = i
        while last + 1 < len(mentions) and mentions[last + 1].end <= end:
            last += 1
            mention = mentions[last]
            is_inner = (
                text.count("(", owner.end, mention.start) > text.count(")", owner.end, mention.start) + 1
            )
            if not is_inner and _is_parameter(text, mention, is_call=is_call):
                self._relate(owner.name, "has parameter", mention, start=owner.start)
        return last

    def _read_lead(self, before: str, i: int) -> None:
        """Read a sentence without a subject, such as "Returns X": it is about what the lines document."""
        text, mentions = self._text, self._mentions
        mention = mentions[i]
        start = 1 + max(before.rfind(". "), before.rfind("。"), before.rfind("；"), before.rfind(";"))
        if len(before) - start > _LONGEST_LEAD:
            return
        lead = _LEAD.match(before, start)
        if lead is None or not _DETERMINER.fullmatch(before, lead.end()):
            return
        predicate = (lead.lastgroup or "").replace("_", " ")
        if predicate == "part of":
            if self._command:
                self._relate(self._command, predicate, mention)
            return
        if mention.start - self._topic_end > _NEAR or not self._may_state(predicate, mention):
            return
        for k in _enumerated_after(text, len(text), mentions, i):
            self._add(mentions[k], predicate)

    def _may_state(self, predicate: str, mention: Mention) -> bool:
        """Whether a sentence without a subject may state a relation of the topic to an entity."""
        if self._topic_type == "clause" or (predicate == "raises" and mention.type != "error"):
            return False
        if predicate == "has value" and self._topic_type not in {"config", "option", "env", "api"}:
            return False
        if predicate == "documented in":
            is_page = _PAGE.match(self._text, mention.end) is not None
            return is_page or mention.type in {"clause", "work", "standard"}
        if _EXCEPTED.match(self._text, mention.end):
            return False
        phrase_end = _DEFINITION_END if predicate == "alias of" else _PHRASE_END
        return phrase_end.match(self._text[mention.end : mention.end + _AFTER]) is not None

    def _add(self, mention: Mention, predicate: str, *, types: set[str] | None = None) -> None:
        if self._topic and (types is None or self._topic_type in types):
            self._relate(self._topic, predicate, mention)

    def _relate(self, subject: str, predicate: str, mention: Mention, *, start: int | None = None) -> None:
        if subject != mention.name:
            place = mention.start if start is None else start
            self.found.append(_relation(subject, predicate, mention.name, place, mention.end, "layout"))


def _documented_command(mentions: Sequence[Mention], title: str, heading: str) -> str:
    """Return the command that a passage documents, or nothing.

    A word such as `verbose` next to the option `--verbose` is none.
    """
    options = {mention.name for mention in mentions if mention.type == "option"}
    commands = [each.name for each in mentions if each.type == "command" and f"--{each.name}" not in options]
    command = _COMMAND_TITLE.fullmatch(title)
    if command and (command["page"] or command["name"] in commands or heading.casefold() == "options"):
        return command["name"]
    most = "" if title else max(commands, key=commands.count, default="")
    return most if 2 * commands.count(most) > len(commands) else ""


def _is_parameter(text: str, mention: Mention, *, is_call: bool) -> bool:
    """Whether a name in a signature is a parameter: no type, no default, no value of an example."""
    if _KEYWORD.match(text, mention.end) and _BEFORE_KEYWORD.search(
        text, max(0, mention.start - 30), mention.start
    ):
        return True
    if is_call:
        return False
    if mention.type not in {"api", "config", "term", "command"} or " " in mention.name:
        return False
    before = _BEFORE_PARAMETER.search(text, max(0, mention.start - 30), mention.start)
    after = _AFTER_PARAMETER.match(text, mention.end)
    return before is not None and after is not None and not _IS_TYPE.fullmatch(mention.name)


def _closing(text: str, opening: int) -> int:
    """Return the place of the bracket that closes the one at a place; its own if there is none near."""
    depth = 0
    for place in range(opening, min(len(text), opening + 400)):
        if text[place] == "(":
            depth += 1
        elif text[place] == ")":
            depth -= 1
            if depth == 0:
                return place
    return opening
