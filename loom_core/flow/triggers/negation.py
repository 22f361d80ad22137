"""Negation detection: whether a message asks for a flow that it names; 「我不请假了」 only names it.

It reads the words around a pattern's match in its clause, and later revocations. A request that is taken for
a mention costs one question; a refusal that is taken for a request has an unwanted effect. So unclear cases
are in doubt, by these rules:

- **Negation.** 不, 没, 别, 取消, "don't", "not", "no one" and similar words before the match, unless a new
  wish begins in between: 「我不想这么早就请假」 and "I don't think I want to take leave" are negated,
  「今天不能来上班要请假」 is not. A negated verb of letting, telling or asking also negates what follows:
  「老板不让我请假」, "no one asked you to take leave". After the match: 「请假算了」, "never mind"; later:
  「等等，先别提交」, "or maybe not". Inside the match only if the pattern itself has no such word:
  「取消.*订单」 is certain.
- **Double negation** is in doubt (「我不是不想请假」), except where it means that something must
  be: 「不得不请假」, 「不请假不行」, "no choice but to".
- **Questions** about how it is done, who may, whether it must be, or its rules are in doubt: 「怎么请假」,
  「谁能请假」, 「转账多久到账」, "what is the leave policy". Requests in the form of questions are not:
  「能不能帮我请假」, "could you book". Nor are the questions that a flow answers: 「我的订单到哪了」.
  A match of a pattern that is a question itself, 「怎么请假」, is certain.
- **Mentions** are in doubt: of the past, of results and of hypotheses (「我已经请过假了」, 「付款失败了」,
  "if I take leave"); of what another person wants, or wants the user to do (「我同事要请假」, 「他让我转账」,
  "she asked to"). A wish for another person is a request: 「帮他请假」.
- **Reports.** A flow that only says something, such as whom to call in an emergency, is meant by what has
  just happened, to the user or others: 「我妈晕倒了，怎么办」. The past and hypotheses stay mentions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from loom_core.cjk import HAN

__all__ = ["NegationKind", "detect_negation", "negates"]

NegationKind: TypeAlias = Literal["", "negation", "question", "mention"]
"""Reason why a matching message may not ask for the flow; empty if it asks for it."""

_NEAR = 60  # characters before and after the match that are read
_LATER = 200
_APOSTROPHE = re.compile(r"(?:\['’\]|\[’'\]|['’])\??")  # as in `can'?t` of a pattern, and in "can't"

_CLAUSE = re.compile(
    r"[,;!?。…\n]|[.:](?=\s|$)|(?<=[了吧啊呢嘛])\s|\bbut\b|但是?|可是|不过|而是|所以|因此", re.I
)


@dataclass(frozen=True, slots=True)
class ClauseContext:
    """A part of a message, and the texts before and after it in its clause.

    `later` is the text after it with the following clauses.
    """

    before: str
    inside: str
    after: str
    later: str
    pattern: str

    @classmethod
    def of(cls, text: str, start: int, end: int, *, pattern: str) -> ClauseContext:
        """Return a part of a text with its context; an empty part stands for the whole text."""
        if start == end:
            start, end = 0, len(text)
        return cls(
            before=_CLAUSE.split(text[max(0, start - _NEAR) : start])[-1],
            inside=text[start:end],
            after=_CLAUSE.split(text[end : end + _NEAR], maxsplit=1)[0].strip(),
            later=text[end : end + _LATER],
            pattern=pattern.lower(),
        )

    def contains(self, script: re.Pattern[str]) -> bool:
        """Return whether the part or its context contains characters of a script."""
        return any(script.search(part) for part in (self.inside, self.before, self.later))

    def has_own_words(self, words: re.Pattern[str], neutral: re.Pattern[str]) -> bool:
        """Return whether the part contains words that the pattern does not match itself."""
        plain = neutral.sub("·", self.inside).lower()
        pattern = _APOSTROPHE.sub("", self.pattern)
        return any(_APOSTROPHE.sub("", found[0]) not in pattern for found in words.finditer(plain))


def detect_negation(
    text: str, start: int, end: int, *, pattern: str, only_informs: bool = False
) -> NegationKind:
    """Detect whether a part of a message is only named, not asked for.

    Args:
        text: the normalized message.
        start: start of the part; an empty part stands for the whole message.
        end: end of the part.
        pattern: the matching pattern: words of doubt in it are intended.
        only_informs: whether the flow changes and asks nothing, so that a report of something asks for it.
    """
    place = ClauseContext.of(text, start, end, pattern=pattern)
    languages = [each for each in (_Chinese, _English) if place.contains(each.script)]
    if any(each.is_negated(place) for each in languages):
        return "negation"
    if only_informs:
        return "" if all(each.tells_of_now(place) for each in languages) else "mention"
    if any(each.is_asked_about(place) for each in languages):
        return "question"
    return "mention" if any(each.is_mentioned(place) for each in languages) else ""


def negates(text: str) -> bool:
    """Return whether a text denies or refuses something: it may be a refusal instead of an answer."""
    return _Chinese.negates(text) or _English.negates(text)


# ----- Chinese -----

_ZH_SCRIPT = re.compile(f"[{HAN}]")

# --- negation ---
_ZH_NEUTRAL = re.compile(
    "不好意思|不舒服|不舒适|不适|不得不|不能不|不可不|不得已|不由得|忍不住|禁不住|能不能|可不可以|要不要|是不是|有没有|"
    "好不好|行不行|会不会|想不想|需不需要|用不用|该不该|对不起|没空|没时间|没事|没关系|没问题|不错|不知道|不清楚|不懂|"
    "[说喘动睡吃走站看听透起找忍受来去赶]不(?:出|上|了|着|下|到|清|住|起|过|动|来|及)|"
    "不明白|不方便|不在|不来|不去|不上班|不止|不仅|不但|没法|特别|分别|别的|别人|区别|级别|差别|类别|未来|没办法"
)
_ZH_WILL = (
    "不太?想|不大想|不要|不用|不需要?|不必|不打算|不准备|不愿意?|不肯|懒得|不再|别再?|没打算|没想|没准备|勿|莫|无需|无须|毋须|甭|"
    "讨厌|厌恶|痛恨|最?恨|反感|拒绝|放弃|取消|撤销|撤回|撤掉|停止|终止|作废|避免|禁止"
)
_ZH_FACT = "不是|不会|不能|不可以|不可|不该|不应该?|不敢|不|没有|没|未"
_ZH_NEGATION = re.compile(f"(?P<will>{_ZH_WILL})|(?:{_ZH_FACT})")
_ZH_THINKING = re.compile("(?:是|觉得|认为|确定|记得|说过?|想过)")
# Letting or telling someone, or doing it for them: what follows is negated as well.
_ZH_LEADS_ON = re.compile(
    "(?:是?让|叫|允许|许|准许?|同意|批准|要求|答应|建议|安排|帮|替|给|有?人|谁|我们?|咱们?|你们?|您|他们?|她们?)+"
)
_ZH_WISH = re.compile("我?(?:要|想|需要|必须|得|希望|请|帮|替|给我|麻烦|只好|只能|申请|办理|提交)")
_ZH_OWN_WISH = re.compile("我(?:要|想|需要|必须|得|希望)")
_ZH_WISH_WITHIN = re.compile("我?(?:要|想|需要|必须|希望)|我得|帮我|麻烦")  # 请 of 请假 does not count
_ZH_MUST = re.compile("(?:可|就|是|都)?不(?:行|可|成)")
_ZH_MAY_I = re.compile(
    "(?:可以|能)·不$|·(?:可以|能|行|成|要得|得行)不$"
)  # 「可以请假不」 asks as 「可以请假吗」 does
_ZH_ENDED = re.compile(
    "(?:不用|不要|不需要|不必|不办|不请|不申请|不去|不弄|不做|不想|(?<![来去动走站起睡吃喝说受忍停止做办])不|取消|撤销|撤回|算了|作罢|"
    "免了|拉倒|没必要|先别|停|再说|"
    "放一放|缓一缓|先放|先缓)"
    "(?:了|吧|啦|呢|掉|办|请|申请|弄|做|它|嘛|就好|着)*$"
)
_ZH_AT_ONCE = "[哦噢呃嗯啊唉那还是就我看不]{0,6}"
_ZH_TAKEN_BACK = re.compile(
    f"(?:^|[,;。!?…\\s]){_ZH_AT_ONCE}(?:"
    "算了|不用了|不要了|不请了|不办了|不弄了|不申请了|取消吧|取消掉|取消$|别了|先不用|先不要|先不请|先不办|当我没说|说错了|"
    f"开玩笑)|[,;。!?…\\s]{_ZH_AT_ONCE}(?:"
    "(?:先|暂时|还是)?(?:不|别|不要|不用|不能)(?:提交|办理?|请|申请|弄|做|发|交|动|转|付|订|查|约|退|开始)?|"
    "先?(?:等等|等一下|等下|等会儿?|稍等|慢着|再等等|再说|(?:再|还要|要)?(?:想想|想一想|看看|考虑(?:一下|考虑)?))"
    ")[了吧啊哈]*[\\s,。!…]*$"
)

# --- questions ---
# Words between a subject and its verb; possessive, as some can be split in two ways.
_ZH_LINK = (
    "(?:也|都|又|还|就|才|再|可不可以|能不能|能够?|可以|会|想要|想|要|需要|得|应该|必须|准备|打算|正在|在|曾经?|一直|老是?|"
    "今天|昨天|前天|明天|后天|上周|下周|上个?月|下个?月|去年|现在|马上|突然|直接|自己|来|去|给|帮|替|向|说)*+"
)
_ZH_ASKING = re.compile(
    "怎么(?!还|没|又|样|回事)|怎样|如何|咋|为什么|为啥|为何|什么是|什么叫|啥是|要不要|该不该|需不需要|用不用|有没有必要|"
    f"提前(?:多久|多长时间|多少天|几天)|(?:咨询|了解|请教|打听|介绍)|谁(?:说|让|叫)|"
    f"(?:谁|哪[些个种类位天里儿]?[^我]{{0,3}}?|什么人|什么时候|何时|几时){_ZH_LINK}(?:负责|批准|审批|批|管|同意|处理)?$"
)
_ZH_HAVE_TO = re.compile("(?:需要|必须|应该|用得着|有必要|难道).{0,4}·[吗么]$")
_ZH_WHO = re.compile("谁|哪些?人|什么人")
_ZH_BELONGS = (
    "条|二维码|码|页面|链接|按钮|界面|密码|方式|渠道|通道|凭证|截图|短信|软件|系统|入口|模板|表|限额|上限|下限|费用?|手续费|利息|"
    "流程|规定|政策|制度|条件|要求|规则|手续|步骤|记录|余额|历史|额度"
)
_ZH_ASKED = re.compile(
    "(?:的|单|申请|这事|这个|一次|一天|时|前|后|之前|之后|期间|是|都|一般|具体|大概)*"
    f"(?:{_ZH_BELONGS}|怎么(?!还|没)|怎样|如何|咋|为什么|为啥|什么意思|多久|多长时间|多少(?!天)|"
    "(?:需要|要|得)(?:什么|哪些|提前|多久|走|准备|谁|找谁|[^我你您帮]{1,6}[吗么]$)|有(?:什么|哪些|没有|啥)|会不会|会扣|扣|算不算|合法|难不难|"
    "(?:会|算|有|影响|很|难|容易|安全|麻烦|贵|快|慢|合法|靠谱|可靠|复杂|划算|免费|收费|正常).{0,10}[吗么嘛不]$)"
    "|单(?=.)(?![0-9号A-Za-z:：])"
)
_ZH_IDENTIFIER = re.compile("[0-9A-Za-z]$")  # the question is about its parts, not how it is done

# --- mentions ---
_ZH_IF = "如果|假如|要是|万一|假设|倘若|除非"
_ZH_SUPPOSED_WITHIN = re.compile(_ZH_IF)
_ZH_SUPPOSED = re.compile(
    f"{_ZH_IF}|宁可|宁愿|听说|据说|已经|早就|刚才|刚刚|上次|以前|曾经|曾|本来|原本|"
    f"等.{{1,12}}(?:再|才)$|(?:为了?|怕|担心|忘了|忘记){_ZH_LINK}$"
)
_ZH_DONE = re.compile("(?:了|过|完|的$|好(?:假|了|没|$)|可?真|太|挺|有点|实在)")  # or it is judged
_ZH_ASKED_IF_DONE = re.compile(
    "(?:(?:了|过|完)假?了?|好(?:了|假了?))(?:吗|没有?|么|嘛)$|好没有?$"
)  # 好吗 is only polite
_ZH_DONE_WITHIN = re.compile("^[^我要想]{1,2}(?<!不)[了过](?=.)")  # 来不了 is not done
_ZH_CAME_OF_IT = re.compile(
    "(?:的|申请|单|时候?|后|又|还是|还|一直|总是?|老是?|都|突然|显示|提示)*"
    "(?:被|遭|失败|出错|报错|异常|超时|[不没未]成功|不[上了]|没反应|[没未]到账|到账了|退回|驳回|没通过|没批|丢了|没了|成功|重复|"
    "多扣|扣了)"
    "|的(?!$|话|事|申请|时)"  # 「请假的同事」
)
_ZH_WISHED = re.compile("要|想|得|需要|准备|打算|决定|帮|替|希望")
_ZH_OPEN = re.compile("哪|多少|几|怎么样")  # 「订单到哪了」 is a question, and not about the past
_ZH_OTHERS = (
    "他们?|她们?|人家|别人|有人|某人|大家|[小老][王李张刘陈杨赵黄周吴徐孙马朱胡郭何林高罗]|^[王李张刘陈杨赵吴徐孙郭][\u4e00-\u9fff]{1,2}?|"
    "同事|朋友|老板|领导|经理|主管|上司|组长|店长|主任|老师|同学|客户|客人|顾客|客服|医生|老公|老婆|丈夫|妻子|妈妈?|爸爸?|儿子|女儿|孩子|"
    "哥哥?|姐姐?|弟弟|妹妹|员工|学生|下属|室友|公司|学校|对方|骗子"
)
_ZH_OTHER_WISHES = re.compile(
    f"(?P<other>[帮替给为代陪带和跟找看见问向对]|联系)?(?:(?:我|你|他|她)们?的?)?(?:{_ZH_OTHERS}){_ZH_LINK}$"
)
_ZH_TOLD = re.compile(
    "^(?P<who>.*?)(?:让|叫|要求|劝|逼|催|建议|通知|允许|批准|同意|许|准|安排|(?<![需想])要(?=我))"
    f"(?:我们?|咱们?|你们?|您){_ZH_LINK}$"
)
_ZH_LEAD = re.compile("(?:要|让|叫)(?:我|你|您)")  # a pattern may begin with it
_ZH_POLITE = re.compile(
    "(?:请|麻烦|拜托|劳驾|能不能|能否|能|可不可以|可以|可否|是否|你们?|您|我们?|想|希望|快|就|那|先)*"
)
_ZH_FORCED = re.compile("被.{0,4}(?:要求|叫|通知|逼|强制|安排|建议)")


# --- reports ---
_ZH_WHAT_NOW = re.compile("[了吧啊呢,]*(?:该|要|我)*怎么(?:办|弄|处理)")
_ZH_NOT_NOW = re.compile(
    f"{_ZH_IF}|宁可|宁愿|听说|据说|以前|曾|上次|上个?(?:周|星期|礼拜|月)|去年|前年|怕|担心|会不会"
)
_ZH_ONCE = re.compile("了?过")


class _Chinese:
    """Negation detection for Chinese."""

    script = _ZH_SCRIPT

    @staticmethod
    def negates(text: str) -> bool:
        """Return whether a text contains a negation."""
        return bool(_ZH_NEGATION.search(_ZH_NEUTRAL.sub("·", _tight(text))))

    @staticmethod
    def is_negated(place: ClauseContext) -> bool:
        """Return whether the flow is negated or revoked."""
        if place.has_own_words(_ZH_NEGATION, _ZH_NEUTRAL) or _ZH_TAKEN_BACK.search(place.later):
            return True
        if _ZH_MUST.match(place.after) or _ZH_MAY_I.search(f"{_tight(place.before)}·{place.after}"):
            return False
        return bool(_ZH_ENDED.search(place.after)) or _is_negated_before_chinese(
            _tight(place.before), place.inside
        )

    @staticmethod
    def tells_of_now(place: ClauseContext) -> bool:
        """Return whether the message may report what is happening, not the past or a hypothesis."""
        before, after = _tight(place.before), place.after
        if _ZH_ASKING.search(before) or (_ZH_ASKED.match(after) and not _ZH_WHAT_NOW.match(after)):
            return False
        return not (_ZH_NOT_NOW.search(before) or _ZH_ONCE.match(after))

    @staticmethod
    def is_asked_about(place: ClauseContext) -> bool:
        """Return whether the message asks about the flow."""
        before = _tight(place.before)
        if _ZH_HAVE_TO.search(f"{before}{place.inside[:2]}·{place.after}"):
            return True
        if _ZH_ASKING.search(before) or place.has_own_words(_ZH_WHO, _ZH_NEUTRAL):
            return True
        return not _ZH_IDENTIFIER.search(place.inside) and bool(_ZH_ASKED.match(place.after))

    @staticmethod
    def is_mentioned(place: ClauseContext) -> bool:
        """Return whether the flow is done already, hypothetical, or wanted by another person."""
        before = _tight(place.before)
        if _ZH_SUPPOSED.search(before) or _ZH_FORCED.search(before) or _ZH_CAME_OF_IT.match(place.after):
            return True
        if place.has_own_words(_ZH_SUPPOSED_WITHIN, _ZH_NEUTRAL):
            return True
        others = _ZH_OTHER_WISHES.search(before)
        lead = _ZH_LEAD.match(place.inside)
        told = _ZH_TOLD.search(before + (lead[0] if lead else ""))
        if (others and not others["other"]) or (told and not _ZH_POLITE.fullmatch(told["who"])):
            return True
        if _ZH_ASKED_IF_DONE.match(place.after) and not _ZH_OPEN.search(place.inside):
            return True
        if _ZH_WISHED.search(before + place.inside) or _ZH_OPEN.search(place.inside):
            return False
        return bool(_ZH_DONE.match(place.after) or _ZH_DONE_WITHIN.match(place.inside))


def _is_negated_before_chinese(before: str, inside: str) -> bool:
    before = _ZH_NEUTRAL.sub("·", before)
    for found in _ZH_NEGATION.finditer(before):
        between = before[found.end() :]
        if _ZH_THINKING.match(between):
            return True
        led = _ZH_LEADS_ON.match(between)
        rest = between[led.end() :] if led else between
        begun = (_ZH_OWN_WISH if found["will"] else _ZH_WISH).search(rest)
        within = (_ZH_OWN_WISH if found["will"] else _ZH_WISH_WITHIN).match(inside)
        if not (begun and begun.start() > 0) and not (within and rest):
            return True
    return False


def _tight(text: str) -> str:
    return "".join(text.split())


# ----- English -----

_EN_SCRIPT = re.compile("[A-Za-z]")

# --- negation ---
_EN_NEUTRAL = re.compile(
    r"\b(?:(?:ca|wo|could|would)n['’]?t you|why (?:don['’]?t (?:you|we)|not)|"
    r"(?:don['’]?t|never) forget(?: to)?|"
    r"can['’]?t (?:wait|help but)|no (?:choice|option|way|alternative) but|not only|no problem|if not|"
    r"no,? wait|"
    r"not (?:feeling|well|good|sure|in|available|able|at|here|working|coming|there))\b",
    re.I,
)
_EN_NEGATION = re.compile(
    r"\b(?:(?:do|does|did|wo|would|ca|could|should|is|ai|was|are|have|has|had|must|need)n['’]?t|cannot|"
    r"not|never|no longer|no one|nobody|no|without|hate|"  # plain-english: data
    r"cancel(?:l?ing|led)?|stop|abort|undo|revoke|withdraw|forget|avoid|refuse|neither|nor|"
    r"(?:instead|rather) (?:of|than))\b",
    re.I,
)
_EN_THINKING = re.compile(
    r"\W*(?:(?:really|actually|even|honestly)\W+)*(?:think|believe|feel|know|suppose|mean|say|said|guess|recall)\b",
    re.I,
)
_EN_ATTACHED = re.compile(
    r"\W*(?:(?:really|actually|even|currently|yet|now|ever|just|in fact)\W+)*"
    r"(?:want|need|like|wish|plan|intend|have|care|going|trying|looking|here)?(?:ing)?\b",
    re.I,
)
# Letting or asking someone: what follows is negated as well.
_EN_LEADS_ON = re.compile(
    r"\W*(?:(?:really|actually|ever|has|have|had|to)\W+)*"
    r"(?:let|make|allow|ask|tell|told|force|have|get|want|permit|authori[sz]e|expect|need|like)(?:s|ed|d|ing)?\W+"
    r"(?:me|you|him|her|us|them|anyone|anybody|my \w+)\b(?:\W+to\b)?",  # plain-english: data
    re.I,
)
_EN_WISH = re.compile(
    r"\b(?:i(?:['’]d| would| really| still| just| do)* (?:want|need|like|have to|must|wish|got to)|"
    r"i['’]m|want|need|"
    r"please|pls|plz|(?:can|could|may) (?:i|you|we)|let me|let['’]s|have to|must|gotta)\b",
    re.I,
)
_EN_ENDED = re.compile(
    r"\b(?:(?:is|are|was) (?:not|no longer)|isn['’]?t|aren['’]?t|not|no longer) "
    r"(?:needed|necessary|required|any ?more)|"
    r"\bcancel(?:led)?(?: (?:it|that|this))?\W*$|\bnever ?mind|\bno(?:t any)? ?more\W*$",
    re.I,
)
_EN_TAKEN_BACK = re.compile(
    r"\b(?:never ?mind|forget (?:it|that|about it)|scratch that|cancel (?:it|that)|"
    r"no,? wait(?=\W*$)|actually,? no|"
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
_EN_BEGINNING = 12  # maximum characters of the match in which a question may end
_EN_ASKING = re.compile(
    r"\b(?:how (?:do|does|can|could|to|would|should|long|many|much|often)|why|"
    r"what (?:happens|if|do (?:i|we|you) need)|"
    r"when (?:do|does|can|should) \w+|where (?:do|can|should) (?:i|we)|who|"
    r"is there|are there|do (?:i|we|they|people|\w+s) (?:really )?(?:need|have)|"
    r"am i (?:allowed|eligible|entitled)|"
    r"should i|(?<!check )(?<!see )whether|"
    r"is it (?:really )?(?:safe|legal|ok|okay|fine|hard|difficult|easy|necessary|worth|wise|free|true|normal|"
    r"required|mandatory|allowed|a scam)|"
    r"(?:tell me|ask|asking|know more|question|questions|info|information)(?: more)? (?:on|about)|explain)\b|"
    r"^\W*should (?!you\b|we\b)\w+|\bwhat (?:is|are|does)(?: an?)?\W*$",
    re.I,
)
_EN_ASKED = re.compile(
    r"\W*(?:(?:request|application|time|booking)\W+)?"
    r"(?:polic(?:y|ies)|process|procedure|rules?|requirements?|eligibility|balance|history|entitlement|mean)\b",
    re.I,
)

# --- mentions ---
_EN_SUPPOSED = re.compile(
    r"\b(?:(?<!wondering )if (?:i|we)|if you(?! (?:could|can|would)\b)|suppose|already|previously|"
    r"i was (?:going|about|planning|supposed|told|asked|forced) to|did \w+|have (?:i|you|we)|"
    r"has \w+|tried to|it was|(?:i|you) did|(?:i|we) forgot(?: to)?|"
    r"i (?:took|requested|booked|applied|ordered|cancelled|asked))\b",
    re.I,
)
_EN_CAME_OF_IT = re.compile(
    r"\W*(?:was|were|got|gets|had|fail(?:s|ed)?|bounced|did(?:n['’]?t)?|does(?:n['’]?t)?|won['’]?t|hasn['’]?t|isn['’]?t|"
    r"(?:has|have|is|are) (?:been|not|being|\w+ed))\b",
    re.I,
)
_EN_OTHER = (
    r"(?:he|she|they|someone|somebody|everyone|everybody|anyone|people|"  # plain-english: data
    r"(?:my|our|the|his|her|a) \w+)"
    r"(?:['’](?:s|d|ll))?(?: \w+ly| also| still| just| really)?"
)
_EN_OTHER_WISHES = re.compile(
    r"\b(?:(?:wants|needs|asks|asked|told|tells|expects|requires|lets|allowed|made|makes|forces|forced)\b|"
    rf"{_EN_OTHER} (?:want(?:ed)?|need(?:ed)?|would|wish|will|has to|have to|had to|should|can|must|may|"
    r"might|"
    r"keeps?|said|asking|"
    r"(?:is|are|was|were) (?:going|trying|planning|asking|telling|forcing|making))\b)",
    re.I,
)

_EN_SAYS = re.compile(
    rf"\b{_EN_OTHER} (?:said|says?|told (?:me|us)|thinks?|insists?|expects?)(?: that)? (?:i|we|you)\b", re.I
)


# --- reports ---
_EN_NOT_NOW = re.compile(
    r"\b(?:if|suppose|used to|in case|afraid of|previously|yesterday|last (?:week|month|year|summer|winter)|"
    r"(?:days?|weeks?|months?|years?) ago)\b",
    re.I,
)


class _English:
    """Negation detection for English."""

    script = _EN_SCRIPT

    @staticmethod
    def negates(text: str) -> bool:
        """Return whether a text contains a negation."""
        return bool(_EN_NEGATION.search(_EN_NEUTRAL.sub("·", text)))

    @staticmethod
    def is_negated(place: ClauseContext) -> bool:
        """Return whether the flow is negated or revoked."""
        if place.has_own_words(_EN_NEGATION, _EN_NEUTRAL) or _EN_TAKEN_BACK.search(place.later):
            return True
        return bool(_EN_ENDED.search(place.after)) or _is_negated_before_english(place.before, place.inside)

    @staticmethod
    def tells_of_now(place: ClauseContext) -> bool:
        """Return whether the message may report what is happening, not the past or a hypothesis."""
        if _EN_ASKING.search(_EN_NEUTRAL.sub("·", place.before)) or _EN_ASKED.match(place.after):
            return False
        return not (_EN_NOT_NOW.search(place.before) or _EN_NOT_NOW.search(place.after))

    @staticmethod
    def is_asked_about(place: ClauseContext) -> bool:
        """Return whether the message asks about the flow."""
        before = _EN_NEUTRAL.sub("·", place.before)
        asking = _EN_ASKING.search(
            f"{before}{place.inside[:_EN_BEGINNING]}"
        )  # "do I" in front, "need" within
        asks = bool(_EN_ASKING.search(before) or (asking and asking.start() < len(before)))
        return asks or bool(_EN_ASKED.match(place.after))

    @staticmethod
    def is_mentioned(place: ClauseContext) -> bool:
        """Return whether the flow is done already, hypothetical, or wanted by another person."""
        if _EN_SUPPOSED.search(place.before) or _EN_CAME_OF_IT.match(place.after):
            return True
        if _EN_SAYS.search(place.before):
            return True
        others = list(_EN_OTHER_WISHES.finditer(place.before))
        return bool(others) and not _EN_WISH.search(place.before, others[-1].end())


def _is_negated_before_english(before: str, inside: str) -> bool:
    before = _EN_NEUTRAL.sub("·", before)
    for found in _EN_NEGATION.finditer(before):
        between = before[found.end() :]
        if _EN_THINKING.match(between):
            return True
        led = _EN_LEADS_ON.match(between) or _EN_ATTACHED.match(between)
        rest = between[led.end() :] if led else between
        begun = _EN_WISH.search(f"{rest}{inside[:12]}")
        if begun is None or begun.start() > len(rest) or not rest.strip():
            return True
    return False
