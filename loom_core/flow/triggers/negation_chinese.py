"""What Chinese words around a piece of business say of it: see `doubt`."""

from __future__ import annotations

import re

from loom_core.cjk import HAN
from loom_core.flow.triggers.place import Place

__all__ = ["SCRIPT", "is_asked_about", "is_mentioned", "is_negated", "negates"]

SCRIPT = re.compile(f"[{HAN}]")
"""What it is written in."""

# --- negation ---
_NEUTRAL = re.compile(
    "不好意思|不舒服|不舒适|不适|不得不|不能不|不可不|不得已|不由得|忍不住|禁不住|能不能|可不可以|要不要|是不是|有没有|"
    "好不好|行不行|会不会|想不想|需不需要|用不用|该不该|对不起|没空|没时间|没事|没关系|没问题|不错|不知道|不清楚|不懂|"
    "不明白|不方便|不在|不来|不去|不上班|不止|不仅|不但|没法|特别|分别|别的|别人|区别|级别|差别|类别|未来|没办法"
)
_WILL = (
    "不太?想|不大想|不要|不用|不需要?|不必|不打算|不准备|不愿意?|不肯|懒得|不再|别再?|没打算|没想|没准备|勿|莫|无需|无须|毋须|甭|"
    "讨厌|厌恶|痛恨|最?恨|反感|拒绝|放弃|取消|撤销|撤回|撤掉|停止|终止|作废|避免|禁止"
)
_FACT = "不是|不会|不能|不可以|不可|不该|不应该?|不敢|不|没有|没|未"
_NEGATION = re.compile(f"(?P<will>{_WILL})|(?:{_FACT})")
_THINKING = re.compile("(?:是|觉得|认为|确定|记得|说过?|想过)")
# Who lets or tells somebody, or does it for them: what follows is negated as well.
_LEADS_ON = re.compile(
    "(?:是?让|叫|允许|许|准许?|同意|批准|要求|答应|建议|安排|帮|替|给|有?人|谁|我们?|咱们?|你们?|您|他们?|她们?)+"
)
_WISH = re.compile("我?(?:要|想|需要|必须|得|希望|请|帮|替|给我|麻烦|只好|只能|申请|办理|提交)")
_OWN_WISH = re.compile("我(?:要|想|需要|必须|得|希望)")
_WISH_WITHIN = re.compile("我?(?:要|想|需要|必须|希望)|我得|帮我|麻烦")  # 请 of 请假 is none
_MUST = re.compile("(?:可|就|是|都)?不(?:行|可|成)")
_MAY_I = re.compile("(?:可以|能)·不$|·(?:可以|能|行)不$")  # 「可以请假不」 asks as 「可以请假吗」 does
_ENDED = re.compile(
    "(?:不用|不要|不需要|不必|不办|不请|不申请|不去|不弄|不做|不想|不|取消|撤销|撤回|算了|作罢|免了|拉倒|没必要|先别|停|再说|"
    "放一放|缓一缓|先放|先缓)"
    "(?:了|吧|啦|呢|掉|办|请|申请|弄|做|它|嘛|就好|着)*$"
)
_AT_ONCE = "[哦噢呃嗯啊唉那还是就我看不]{0,6}"
_TAKEN_BACK = re.compile(
    f"(?:^|[,;。!?…\\s]){_AT_ONCE}(?:"
    "算了|不用了|不要了|不请了|不办了|不弄了|不申请了|取消吧|取消掉|取消$|别了|先不用|先不要|先不请|先不办|当我没说|说错了|"
    f"开玩笑)|[,;。!?…\\s]{_AT_ONCE}(?:"
    "(?:先|暂时|还是)?(?:不|别|不要|不用|不能)(?:提交|办理?|请|申请|弄|做|发|交|动|转|付|订|查|约|退|开始)?|"
    "先?(?:等等|等一下|等下|等会儿?|稍等|慢着|再等等|再说|(?:再|还要|要)?(?:想想|想一想|看看|考虑(?:一下|考虑)?))"
    ")[了吧啊哈]*[\\s,。!…]*$"
)

# --- questions ---
# What may stand between a subject and what it does; possessive, as some of it can be cut in two ways.
_LINK = (
    "(?:也|都|又|还|就|才|再|可不可以|能不能|能够?|可以|会|想要|想|要|需要|得|应该|必须|准备|打算|正在|在|曾经?|一直|老是?|"
    "今天|昨天|前天|明天|后天|上周|下周|上个?月|下个?月|去年|现在|马上|突然|直接|自己|来|去|给|帮|替|向|说)*+"
)
_ASKING = re.compile(
    "怎么(?!还|没|又|样|回事)|怎样|如何|咋|为什么|为啥|为何|什么是|什么叫|啥是|要不要|该不该|需不需要|用不用|有没有必要|"
    f"(?:咨询|了解|请教|打听|介绍)|谁(?:说|让|叫)|"
    f"(?:谁|哪[些个种类位天里儿]?[^我]{{0,3}}?|什么人|什么时候|何时|几时){_LINK}(?:负责|批准|审批|批|管|同意|处理)?$"
)
_HAVE_TO = re.compile("(?:需要|必须|应该|用得着|有必要|难道).{0,4}·[吗么]$")
_WHO = re.compile("谁|哪些?人|什么人")
_BELONGS = (
    "条|二维码|码|页面|链接|按钮|界面|密码|方式|渠道|通道|凭证|截图|短信|软件|系统|入口|模板|表|限额|上限|下限|费用?|手续费|利息|"
    "流程|规定|政策|制度|条件|要求|规则|手续|步骤|记录|余额|历史|额度"
)
_ASKED = re.compile(
    "(?:的|单|申请|这事|这个|一次|一天|时|前|后|之前|之后|期间|是|都|一般|具体|大概)*"
    f"(?:{_BELONGS}|怎么(?!还|没)|怎样|如何|咋|为什么|为啥|什么意思|多久|多长时间|多少(?!天)|"
    "(?:需要|要|得)(?:什么|哪些|提前|多久|走|准备|谁|找谁|[^我你您帮]{1,6}[吗么]$)|有(?:什么|哪些|没有|啥)|会不会|会扣|扣|算不算|合法|难不难|"
    "(?:会|算|有|影响|很|难|容易|安全|麻烦|贵|快|慢|合法|靠谱|可靠|复杂|划算|免费|收费|正常).{0,10}[吗么嘛不]$)"
    "|单(?=.)(?![0-9号A-Za-z:：])"
)
_IDENTIFIER = re.compile("[0-9A-Za-z]$")  # whose parts are asked about, not how it is done

# --- mentions ---
_IF = "如果|假如|要是|万一|假设|倘若|除非"
_SUPPOSED_WITHIN = re.compile(_IF)
_SUPPOSED = re.compile(
    f"{_IF}|宁可|宁愿|听说|据说|已经|早就|刚才|刚刚|上次|以前|曾经|曾|本来|原本|"
    f"等.{{1,12}}(?:再|才)$|(?:为了?|怕|担心|忘了|忘记){_LINK}$"
)
_DONE = re.compile("(?:了|过|完|的$|好(?:假|了|没|$)|可?真|太|挺|有点|实在)")  # or it is judged
_ASKED_IF_DONE = re.compile(
    "(?:(?:了|过|完)假?了?|好(?:了|假了?))(?:吗|没有?|么|嘛)$|好没有?$"
)  # 好吗 is polite
_DONE_WITHIN = re.compile("^[^我要想]{1,2}[了过](?=.)")
_CAME_OF_IT = re.compile(
    "(?:的|申请|单|时候?|后|又|还是|还|一直|总是?|老是?|都|突然|显示|提示)*"
    "(?:被|遭|失败|出错|报错|异常|超时|[不没未]成功|不[上了]|没反应|[没未]到账|到账了|退回|驳回|没通过|没批|丢了|没了|成功|重复|"
    "多扣|扣了)"
    "|的(?!$|话|事|申请|时)"  # 「请假的同事」
)
_WISHED = re.compile("要|想|得|需要|准备|打算|决定|帮|替|希望")
_OPEN = re.compile("哪|多少|几|怎么样")  # 「订单到哪了」 asks, and tells of nothing that is over
_OTHERS = (
    "他们?|她们?|人家|别人|有人|某人|大家|[小老][王李张刘陈杨赵黄周吴徐孙马朱胡郭何林高罗]|^[王李张刘陈杨赵吴徐孙郭][\u4e00-\u9fff]{1,2}?|"
    "同事|朋友|老板|领导|经理|主管|上司|组长|店长|主任|老师|同学|客户|客人|顾客|客服|医生|老公|老婆|丈夫|妻子|妈妈?|爸爸?|儿子|女儿|孩子|"
    "哥哥?|姐姐?|弟弟|妹妹|员工|学生|下属|室友|公司|学校|对方|骗子"
)
_OTHER_WISHES = re.compile(
    f"(?P<other>[帮替给为代陪带和跟找看见问向对]|联系)?(?:(?:我|你|他|她)们?的?)?(?:{_OTHERS}){_LINK}$"
)
_TOLD = re.compile(
    "^(?P<who>.*?)(?:让|叫|要求|劝|逼|催|建议|通知|允许|批准|同意|许|准|安排|(?<![需想])要(?=我))"
    f"(?:我们?|咱们?|你们?|您){_LINK}$"
)
_LEAD = re.compile("(?:要|让|叫)(?:我|你|您)")  # which a pattern may begin with
_POLITE = re.compile(
    "(?:请|麻烦|拜托|劳驾|能不能|能否|能|可不可以|可以|可否|是否|你们?|您|我们?|想|希望|快|就|那|先)*"
)
_FORCED = re.compile("被.{0,4}(?:要求|叫|通知|逼|强制|安排|建议)")


def negates(text: str) -> bool:
    """Whether anything is negated in a text."""
    return bool(_NEGATION.search(_NEUTRAL.sub("·", _tight(text))))


def is_negated(place: Place) -> bool:
    """Whether it is not wanted, or taken back."""
    if place.holds_its_own(_NEGATION, _NEUTRAL) or _TAKEN_BACK.search(place.later):
        return True
    if _MUST.match(place.after) or _MAY_I.search(f"{_tight(place.before)}·{place.after}"):
        return False
    return bool(_ENDED.search(place.after)) or _negated_before(_tight(place.before), place.inside)


def _negated_before(before: str, inside: str) -> bool:
    before = _NEUTRAL.sub("·", before)
    for found in _NEGATION.finditer(before):
        between = before[found.end() :]
        if _THINKING.match(between):
            return True
        led = _LEADS_ON.match(between)
        rest = between[led.end() :] if led else between
        begun = (_OWN_WISH if found["will"] else _WISH).search(rest)
        within = (_OWN_WISH if found["will"] else _WISH_WITHIN).match(inside)
        if not (begun and begun.start() > 0) and not (within and rest):
            return True
    return False


def is_asked_about(place: Place) -> bool:
    """Whether something about it is asked."""
    before = _tight(place.before)
    if _HAVE_TO.search(f"{before}{place.inside[:2]}·{place.after}"):
        return True
    if _ASKING.search(before) or place.holds_its_own(_WHO, _NEUTRAL):
        return True
    return not _IDENTIFIER.search(place.inside) and bool(_ASKED.match(place.after))


def is_mentioned(place: Place) -> bool:
    """Whether it is done already, or only might be, or is what somebody else wants."""
    before = _tight(place.before)
    if _SUPPOSED.search(before) or _FORCED.search(before) or _CAME_OF_IT.match(place.after):
        return True
    if place.holds_its_own(_SUPPOSED_WITHIN, _NEUTRAL):
        return True
    others = _OTHER_WISHES.search(before)
    lead = _LEAD.match(place.inside)
    told = _TOLD.search(before + (lead[0] if lead else ""))
    if (others and not others["other"]) or (told and not _POLITE.fullmatch(told["who"])):
        return True
    if _ASKED_IF_DONE.match(place.after) and not _OPEN.search(place.inside):
        return True
    if _WISHED.search(before + place.inside) or _OPEN.search(place.inside):
        return False
    return bool(_DONE.match(place.after) or _DONE_WITHIN.match(place.inside))


def _tight(text: str) -> str:
    return "".join(text.split())
