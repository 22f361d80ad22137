"""The current embedder of a knowledge base, and the centroids of the languages in its space.

A language centroid is the average vector of sentences about anything (`CALIBRATION_TEXTS`, the same ones in
every language): the baseline of the language, with which the cosine of a question is compared.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider, ForwardingEmbedder
from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, EmbeddingError
from loom_core.knowledge.text.languages import language_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.store import KnowledgeStore

__all__ = ["CALIBRATION_TEXTS", "CurrentEmbedder", "LanguageCentroids", "embedder_language_groups"]


class CurrentEmbedder(ForwardingEmbedder):
    """The embedder that the store names; after a change, `follow` switches to the new one.

    Args:
        store: the store, which names the current embedder.
        provider: the embedder that was current when the knowledge base was opened.
    """

    def __init__(self, store: KnowledgeStore, provider: EmbeddingProvider) -> None:
        super().__init__(provider)
        self._store = store
        self._known = {provider.id: provider}

    def get_or_create(self, id_: str, config: dict[str, str]) -> EmbeddingProvider:
        """Return an embedder by its id, created from its configuration unless known; blocks for a moment.

        If that is impossible, return a placeholder that raises the reason when it embeds.
        """
        if id_ not in self._known:
            try:
                made = create_embedder(config)
            except ConfigError as error:
                made = _Unavailable(id_, str(error))
            self._known[id_] = made if made.id == id_ else _Unavailable(id_, f"{made.id} is another one.")
        return self._known[id_]

    def register(self, provider: EmbeddingProvider) -> None:
        """Register an embedder that may take over, so that it need not be created."""
        self._known[provider.id] = provider

    def follow(self) -> None:
        """Switch to the embedder that the store names, if it changed. Blocks for microseconds."""
        id_ = self._store.get("embedder")
        if id_ and id_ != self._provider.id:
            self._provider = self.get_or_create(id_, json.loads(self._store.get("embedding_config") or "{}"))


class _Unavailable(EmbeddingProvider):
    """Placeholder for an embedder that cannot be created here."""

    def __init__(self, id_: str, reason: str) -> None:
        self._id = id_
        self._reason = reason

    @property
    def id(self) -> str:
        return self._id

    @property
    def dimension(self) -> int:
        return 0

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        raise EmbeddingError(
            f"The embedder {self._id!r} of this knowledge base is not available here: {self._reason}",
            advice="Install it, or change to another: loom-kb rebuild --embedder NAME.",
        )


class LanguageCentroids:
    """Language centroids of a knowledge base's embedder: the worker makes them, the store keeps them.

    The average of a few passages is a poor estimate of the baseline of their language; a centroid does not
    depend on the passages. Questions only read the centroids, and do without until the worker has made them,
    which can take more than ten seconds while passages are embedded: there are up to eighty sentences.

    Args:
        store: the store, which keeps them.
        embedder: embeds passages and questions.
    """

    def __init__(self, store: KnowledgeStore, embedder: EmbeddingProvider) -> None:
        self._store = store
        self._embedder = embedder

    def of(self, languages: frozenset[str], *, space: str) -> dict[str, NDArray[np.float32]]:
        """Return the centroid of the calibration texts of each comparable language. Blocks.

        It is not normalised to length 1, so that its product with a question is an average cosine.

        Args:
            languages: the language groups of the passages.
            space: id of the embedder of the question.

        Returns:
            The centroids made so far; none for an embedder whose cosines do not measure meaning.
        """
        compared = self._comparable_languages(languages)
        made = self._load_encoded(space) if compared else {}
        return {language: _decode(made[language]) for language in compared & made.keys()}

    def missing(self, languages: frozenset[str]) -> str:
        """Return the next language that lacks a centroid; empty if there is none. Blocks."""
        compared = self._comparable_languages(languages)
        return min(compared - self._load_encoded(self._embedder.id).keys(), default="") if compared else ""

    def store(self, language: str, vectors: NDArray[np.float32], *, space: str) -> None:
        """Store a centroid. Those of another embedder are dropped.

        Args:
            language: the language group.
            vectors: the vectors of its calibration texts.
            space: id of the embedder that made them.
        """
        with self._store.database.write():
            made = self._load_encoded(space) | {language: _encode(vectors.mean(axis=0))}
            self._store.set("centroids", json.dumps({"embedder": space, "vectors": made}))

    def _comparable_languages(self, languages: frozenset[str]) -> frozenset[str]:
        """Return the languages whose passages questions are compared with by meaning."""
        if not self._embedder.semantic:
            return frozenset()
        groups = embedder_language_groups(self._embedder)
        return languages if groups is None else languages & groups

    def _load_encoded(self, space: str) -> dict[str, str]:
        """Return the encoded centroids of an embedder by language."""
        kept = json.loads(self._store.get("centroids") or "{}")
        return kept["vectors"] if kept.get("embedder") == space else {}


def embedder_language_groups(embedder: EmbeddingProvider) -> frozenset[str] | None:
    """Return the language groups that an embedder covers; None for all."""
    return None if embedder.languages is None else frozenset(map(language_group, embedder.languages))


def _encode(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _decode(text: str) -> NDArray[np.float32]:
    import numpy as np

    return np.frombuffer(base64.b64decode(text), dtype="<f4")


CALIBRATION_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "alphabetic": (
        "The river rises in the mountains, flows through three provinces and reaches the sea near a port.",
        "The king died without an heir, and a civil war broke out that lasted for eleven years.",
        "She was born in 1902, studied medicine and later became the first woman to direct the hospital.",
        "Plants use sunlight to turn water and carbon dioxide into sugar and oxygen.",
        "Patients who took the drug recovered faster than those in the control group.",
        "The film was made by a young director and won two prizes at the festival.",
        "The company was founded in the capital and sells machines in more than forty countries.",
        "To change the password, open the settings, choose your account and click on Save.",
        "The function returns an error if the file does not exist.",
        "Cook the rice for fifteen minutes, then add the vegetables and a little salt.",
        "The bus comes every ten minutes, but it does not run on Sundays.",
        "The athlete broke the national record over ten thousand metres.",
        "The tenant must pay the rent before the third day of each month.",
        "Tomorrow will be cloudy and cold, with snow in the north.",
        "After a long debate, parliament passed the law by a narrow majority.",
        "What time shall we meet for dinner tonight?",
        "Prices rose by three per cent last year, while wages hardly changed.",
        "Light travels at about 300,000 kilometres per second.",
        "The novel tells the story of two brothers who leave their village to look for work.",
        "My grandmother keeps the letters in a wooden box.",
    ),
    "zh": (
        "这条河发源于山区，流经三个省，在一座港口附近入海。",
        "国王去世时没有继承人，随后爆发的内战持续了十一年。",
        "她生于1902年，学习医学，后来成为这家医院的第一位女院长。",
        "植物利用阳光把水和二氧化碳转化为糖和氧气。",
        "服用这种药物的患者比对照组恢复得更快。",
        "这部电影由一位年轻导演执导，在电影节上获得两个奖项。",
        "这家公司成立于首都，机器销往四十多个国家。",
        "要修改密码，请打开设置，选择您的账户，然后点击“保存”。",
        "如果文件不存在，该函数会返回错误。",
        "米饭煮十五分钟，然后加入蔬菜和少许盐。",
        "公交车每十分钟一班，星期日停运。",
        "这位选手打破了一万米全国纪录。",
        "承租人须在每月三日之前支付租金。",
        "明天多云，气温较低，北部有雪。",
        "经过长时间辩论，议会以微弱多数通过了这项法律。",
        "今晚我们几点一起吃饭？",
        "去年物价上涨了百分之三，而工资几乎没有变化。",
        "光的速度约为每秒三十万公里。",
        "小说讲述了两兄弟离开村庄外出谋生的故事。",
        "奶奶把信都放在一个木盒子里。",
    ),
    "ja": (
        "この川は山地に源を発し、三つの県を流れて、港の近くで海に注ぐ。",
        "王が後継ぎを残さずに亡くなると内戦が起こり、十一年間続いた。",
        "彼女は1902年に生まれ、医学を学び、のちにその病院で初の女性院長となった。",
        "植物は日光を使って水と二酸化炭素から糖と酸素を作る。",
        "この薬を服用した患者は、対照群の患者よりも早く回復した。",
        "この映画は若い監督によって作られ、映画祭で二つの賞を受けた。",
        "その会社は首都で設立され、四十か国以上で機械を販売している。",
        "パスワードを変更するには、設定を開き、アカウントを選んで「保存」をクリックしてください。",
        "ファイルが存在しない場合、この関数はエラーを返します。",
        "米を十五分間炊き、それから野菜と塩を少し加えます。",
        "バスは十分おきに来ますが、日曜日は運休です。",
        "その選手は一万メートルの国内記録を更新した。",
        "借主は毎月三日までに家賃を支払わなければならない。",
        "あすは曇りで寒く、北部では雪が降るでしょう。",
        "長い議論の末、議会は僅差でその法律を可決した。",
        "今夜は何時に食事をしましょうか。",
        "昨年、物価は三パーセント上がったが、賃金はほとんど変わらなかった。",
        "光は毎秒およそ三十万キロメートルの速さで進む。",
        "その小説は、仕事を求めて村を出た二人の兄弟の物語である。",
        "祖母は手紙を木の箱にしまっている。",
    ),
    "ko": (
        "이 강은 산지에서 시작하여 세 개의 도를 지나 항구 근처에서 바다로 흘러든다.",
        "왕이 후계자 없이 죽자 내전이 일어나 십일 년 동안 이어졌다.",
        "그녀는 1902년에 태어나 의학을 공부했고, 훗날 그 병원의 첫 여성 원장이 되었다.",
        "식물은 햇빛을 이용해 물과 이산화탄소를 당과 산소로 바꾼다.",
        "이 약을 복용한 환자들은 대조군보다 빨리 회복했다.",
        "이 영화는 젊은 감독이 만들었으며 영화제에서 두 개의 상을 받았다.",
        "그 회사는 수도에서 설립되었고 사십여 개국에 기계를 판매한다.",
        "비밀번호를 변경하려면 설정을 열고 계정을 선택한 다음 저장을 클릭하세요.",
        "파일이 존재하지 않으면 이 함수는 오류를 반환합니다.",
        "쌀을 십오 분 동안 익힌 다음 채소와 소금을 조금 넣으세요.",
        "버스는 십 분마다 오지만 일요일에는 운행하지 않는다.",
        "그 선수는 만 미터 국내 기록을 깼다.",
        "임차인은 매월 삼 일까지 집세를 내야 한다.",
        "내일은 흐리고 춥겠으며 북부에는 눈이 내리겠습니다.",
        "오랜 토론 끝에 의회는 근소한 차이로 그 법을 통과시켰다.",
        "오늘 저녁 몇 시에 만나서 식사할까요?",
        "지난해 물가는 삼 퍼센트 올랐지만 임금은 거의 변하지 않았다.",
        "빛은 초당 약 삼십만 킬로미터의 속도로 나아간다.",
        "이 소설은 일자리를 찾아 마을을 떠난 두 형제의 이야기이다.",
        "할머니는 편지를 나무 상자에 보관하신다.",
    ),
}
"""Twenty sentences by language group, in the same order: they differ in nothing but the language."""
