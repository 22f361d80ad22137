"""Entity types of Chinese names: validate jieba's tags.

Its dictionary tags many other words as persons (`卫星`, `天后庙`), and places that are written like foreign
persons (`里昂`). A Chinese person's name begins with a surname; a foreign one is made of the characters that
foreign names are written with, and occurs where no place would.
"""

from __future__ import annotations

from typing import Literal

from loom_core.knowledge.text.analysis import is_stop_word
from loom_core.knowledge.text.memoization import memoize

__all__ = [
    "BEFORE_PERSONS",
    "ChineseType",
    "foreign_kind",
    "is_place_in_context",
    "organisation_type",
    "person_kind",
    "place_type",
    "thing_type",
]


ChineseType = Literal["person", "place", "organisation", "work", "event", "thing"]

SURNAMES = frozenset(
    "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张孔曹严华金魏陶姜戚谢邹喻柏窦章苏潘葛奚范"
    "彭郎鲁韦马苗凤方俞任袁柳鲍史唐费廉岑薛雷贺倪汤滕殷罗毕郝邬安常乐于傅齐康伍余顾孟黄穆萧尹"
    "姚邵汪祁毛禹狄臧戴宋庞熊纪舒屈项祝董梁杜阮蓝闵席季麻贾路娄江童颜郭梅盛林刁钟徐邱骆高夏蔡"
    "田樊胡凌霍虞万柯管卢莫房解应宗丁邓洪包左石崔吉龚程嵇邢裴陆荣翁荀甄曲封储靳段巫焦侯宓全班"
    "秋仲宫宁仇栾甘厉武符刘景詹束龙叶幸司黎蓟薄白蒲邰鄂籍赖卓蔺屠蒙池乔闻党翟谭劳姬申冉桑桂牛"
    "边燕冀浦尚温庄晏柴瞿阎慕连茹习艾鱼容向易慎戈廖耿满弘匡国寇广禄欧沃利蔚越隆师巩聂晁敖融冷"
    "辛阚那简饶曾沙养鞠丰关荆游权迟肖佟岳楼"
)
"""Surnames of one character."""
FOREIGN = frozenset(
    "阿埃艾爱安昂奥巴班邦保鲍贝本比彼毕宾波伯勃博卜布采查楚茨达戴黛丹德邓狄迪蒂顿丁东杜多厄恩尔法"
    "凡范菲费芬丰佛夫弗福盖甘冈戈格葛根古哈海汉豪赫亨霍基吉季加贾杰金津卡凯坎康考柯科可克肯孔"
    "库夸昆拉莱兰朗劳勒雷蕾黎里理莉丽利连列林隆龙卢鲁路伦罗洛吕马玛迈麦曼芒茂梅门蒙孟米密敏缪"
    "摩莫墨默姆穆拿纳娜奈南瑙内嫩尼涅宁纽农努诺欧帕派潘庞培佩彭皮匹珀普奇齐恰强乔切琴丘热仁荣"
    "茹儒瑞若撒萨塞赛桑瑟沙莎山绍舍申圣施什史舒斯松苏索塔泰坦汤唐陶特腾提田廷通图托瓦万旺威韦"
    "维魏温文沃乌吴武伍西希席锡夏香肖谢辛欣逊雅亚延扬耶叶伊易因英尤约赞泽扎詹珍朱兹佐"
)
"""Characters that foreign names are written with."""
DOUBLE_SURNAMES = frozenset(
    """
    司马 上官 欧阳 夏侯 诸葛 东方 皇甫 尉迟 公孙 慕容 司徒 司空 令狐 宇文 长孙 端木 独孤 南宫 耶律 完颜 拓跋
    爱新 叶赫
    """.split()
)
"""Surnames of two characters."""
BEFORE_PERSONS = frozenset("由与和被对向为给让跟同")
"""Words that the tagger mistakes for the beginning of a name of four characters or more: 由林若曦."""
PLACE_ENDS = frozenset("郡州市县镇村庄省庙寺宫殿街岛湖河港站院塔桥区洲湾")
"""Last characters of names of places that the tagger mistakes for persons: 天后庙."""
THING_ENDS = frozenset("族人语鱼类科属军队赛奖色馆店厂社党朝代纪世者家")
"""Last characters of other words that the tagger mistakes for persons: 赫哲族, 季后赛."""

NO_PERSONS = frozenset(
    """
    卫星 马匹 马鹿 马达 马路 马上 马车 高峰 高速 高等 高中 高度 高原 高手 温泉 温度 温和 明星 巨星 黎明 黎民
    文明 文化 熊猫 金钟 金牌 金额 金融 金属 金星 王朝 王国 王子 王后 王室 王位 王妃 王府 陆军 陆地 白银 白色
    白天 白云 容纳 容易 容量 荣誉 荣获 荣耀 光荣 顾问 顾客 于是 巫医 巫师 华裔 华人 华侨 华丽 时代 史前 史料
    史诗 古老 祖先 子孙 青少年 凤冠 凤凰 恒星 博客 道德 智慧 公正 英勇 宣言 和尚 童子 太后 太子 太祖 太宗 大王
    大帝 皇帝 小镇 小姐 富豪 侍郎 侍中 将军 大将军 都御史 真君 亚军 冠军 季军 季节 季后赛 晋级 明白 布满 向东
    步操 天文台 花岗岩 显微镜 修道院 成文法 任教于 司马 诸葛 司令 司法 司机 江山 江湖 江水 石油 石头 石器 石灰
    龙头 牛奶 牛肉 鱼类 鹿角 桂花 叶子 叶片 荆棘 连续 连接 连锁 包括 包含 包装 广告 广场 广播 国家 国王 国会
    国际 利用 利益 利润 安全 安排 安装 常见 常用 全部 全国 全球 方法 方向 方式 方面 关系 关于 关键 应用 应该
    许多 何时 何人 成为 成功 解决 解释 管理 管道 路线 路面 幸福 东方 满足 毕业 任务 任何 严重 严格 水平 雷达
    雷电 强大 丰富 乐队 乐器 乐团 易燃 项目 程序 程度 党员 钟楼 章节 章程 费用 符号 计划 席位 万能 越来 边缘
    边境 池塘 沙漠 沙滩 经济 宗教 宗旨 武器 武术 温室 柏油 梅花 柳树 杨树 松树 桑树 苗木 麻醉 鲍鱼 蓝色 黄色
    黄金 黄河 黄昏 黄道 红色 山区 平原 田地 田园 田径 房屋 房间 宫廷 宫殿 班级 班机 师生 师范 车站 舒适 简单
    简介 简化 养殖 养分 权力 权利 游戏 游客 游泳 迟到 令人 恩人 二人 二世 三世 四世 五世 崇拜 崇尚 称王 三杰
    密宗 二中 新世 二马路
    """.split()
)
"""Common words that the tagger mistakes for persons, or that begin with a surname."""
NO_PLACES = frozenset(
    """
    巴士 城市 都市 太阳 长度 加盟 朝廷 东北 西北 东南 西南 南路 亚科 家乡 海洋 大陆 全境 内地 外地 当地 山区
    大海 内陆 市区 郊区 首都 地球 月球
    """.split()
)
"""Common words that the tagger mistakes for places."""

_WITH_WORD_BEFORE = 4  # minimum characters of a name with such a preceding word
PersonKind = Literal["person", "foreign", "place", "thing"]


@memoize
def person_kind(word: str) -> PersonKind | None:
    """Return the kind of a word that jieba tags as a person's name; `foreign` is a person or a place."""
    if is_stop_word(word):
        return None
    if word in NO_PERSONS or len(word) > 8:
        return "thing"
    if word[-1] in PLACE_ENDS:
        return "place" if len(word) > 2 else "thing"
    if FOREIGN.issuperset(word):
        return "foreign"
    if len(word) >= _WITH_WORD_BEFORE and word[0] in BEFORE_PERSONS:
        return person_kind(word[1:])
    if len(word) > 2 and word[-1] in THING_ENDS:
        return "thing"
    is_person = (len(word) < 4 and word[0] in SURNAMES) or (word[:2] in DOUBLE_SURNAMES and len(word) < 5)
    return "person" if is_person or word in _KNOWN else "thing"


# Persons whose names have no surname.
_KNOWN = frozenset("老子 墨子 释迦牟尼 努尔哈赤".split())


@memoize
def foreign_kind(word: str) -> PersonKind | None:
    """Return the kind of a word that jieba tags as a foreign person's name."""
    kind = person_kind(word)
    is_common = word in NO_PERSONS or (len(word) > 2 and word[-1] in THING_ENDS)
    return "foreign" if kind == "thing" and not is_common else kind


@memoize
def place_type(word: str) -> ChineseType | None:
    """Return the type of a word that jieba tags as a place's name."""
    if is_stop_word(word):
        return None
    return "thing" if word in NO_PLACES else "place"


@memoize
def organisation_type(word: str) -> ChineseType | None:
    """Return the type of a word that jieba tags as an organisation's name."""
    return None if is_stop_word(word) else "organisation"


@memoize
def thing_type(word: str) -> ChineseType | None:
    """Return the type of a word that jieba tags as another name."""
    return None if is_stop_word(word) else "thing"


_PLACE_BEFORE = ("在", "位于", "於", "于", "到", "往", "抵达", "自", "从", "赴", "驻", "离开", "返回", "经")
_OF_PERSON = frozenset("之的看身眼带领率手家心等时说任与和及为以先给把被")
"""Characters that follow a person in `在爱因斯坦之后`, `从爱因斯坦的…`."""
_PLACE_BEHIND = ("市", "省", "州", "县", "岛", "城", "境内", "地区", "大学", "以北", "以南", "以东", "以西")


def is_place_in_context(text: str, start: int, end: int) -> bool:
    """Whether the context of a foreign name is that of a place: `在里昂`, `位于里昂`, `里昂地区`."""
    if text.startswith(_PLACE_BEHIND, end):
        return True
    return text.endswith(_PLACE_BEFORE, max(0, start - 2), start) and text[end : end + 1] not in _OF_PERSON
