"""Entity types of English names, by their own words, by their context, by "X is a Y".

Type words of one short list serve all three: a *river* is a place, in `Hudson River`, in `the river
Hudson` or in `Hudson is a tidal river`. What is not sure stays a `thing`; of an entity's mentions those with
a type decide.
"""

from __future__ import annotations

import re
from typing import Literal

from loom_core.knowledge.text.memoization import memoize

__all__ = ["NameType", "is_quoted_work", "type_from_context", "type_of_name", "type_of_noun_phrase"]

_PEOPLES = ("an", "ish", "ese", "ers", "ern", "ists")  # North American, East Germans, New Yorkers
_PERSON_ENDS = frozenset("Jr Sr II III IV VI VII VIII".split())
_PLACE_ENDS = ("ville", "burgh", "shire", "istan", "land", "borough", "abad", "sylvania")
_INITIALS = re.compile(r"(?:[A-Z]\.)+")

_LONGEST_PERSON = 4  # words
_SHORTEST_ENDED = 6  # characters


# Words for peoples and languages, which are not places in "in American films".
_PEOPLE = re.compile(
    r".*(?:ian|ean|(?<!ti)can|ish|ese|eli|ani|aqi)|Argentine|Bengali|Cuban|Czech|Danes?|Dutch|Filipino|Finn|French|"
    r"German|Greek|Hindi|Malayalam|Moroccan|Norman|Roman|Scots|Swiss|Tamil|Telugu|Thai|Tibetan|Turk|Urdu|Welsh"
)


@memoize
def type_of_name(name: str) -> NameType | None:
    """Return the type of a name by its own words; None if only its context can tell."""
    words = [word.rstrip(".") for word in name.replace("\u00a0", " ").split()]
    if len(words) > 1 and words[0] == "The":
        words = words[1:]
    first, last = words[0], words[-1]
    if first in CALENDAR:
        return "thing"
    if len(words) == 1:
        if _PEOPLE.fullmatch(first):
            return "thing"
        return "place" if _is_place_by_ending(first) else None
    if last in _PERSON_ENDS:
        return LAST_TYPES.get(words[-2], "person")  # World War II
    if "of" in words or "for" in words:
        before = words[words.index("of" if "of" in words else "for") - 1]
        return FIRST_OF.get(before) or LAST_TYPES.get(before)
    if last in LAST_TYPES:
        return LAST_TYPES[last]
    if first in PERSON_TITLES:
        return "person"
    if first in FIRST_PLACE or (first in DIRECTIONS and len(words) == 2 and _is_place_word(last)):
        return "place"
    if (
        len(words) <= _LONGEST_PERSON
        and (first in GIVEN_NAMES or _INITIALS.match(name))
        and last[0].isalpha()
    ):
        return "person"
    return None


def _is_place_by_ending(word: str) -> bool:
    return word.endswith(_PLACE_ENDS) and len(word) > _SHORTEST_ENDED and word not in NO_PLACES


def _is_place_word(word: str) -> bool:
    """Whether the word after `New` or `North` may be a place, unlike `American` or `Yorkers`."""
    return word.istitle() and not word.endswith(_PEOPLES) and not _PEOPLE.fullmatch(word)


_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_PHRASE_END = re.compile(
    r"[,;:()]|(?<![\w-])(?:that|which|who|whose|where|when|in|of|by|from|for|to|on|at|with|and|or|as|directed|written|"
    r"produced|based|located|situated|used|known|born|founded|released|published|created|designed|made|is|was)(?![\w-])"
)


def type_of_noun_phrase(phrase: str) -> NameType:
    """Return the type of an "American actor and film producer", or "a small town in Ohio"."""
    end = _PHRASE_END.search(phrase)
    words: list[str] = _WORD.findall(phrase[: end.start()] if end else phrase)
    for word in reversed(words[-2:]):  # "a tributary stream"; "a film noir"
        if found := _noun_type(word.lower()):
            return found
    return "thing"


@memoize
def _noun_type(noun: str) -> NameType | None:
    """Return the type of a noun: singular, plural, or a compound such as `singer-songwriter`."""
    noun = noun.rpartition("-")[2]
    return (
        NOUN_TYPES.get(noun)
        or NOUN_TYPES.get(noun.removesuffix("s"))
        or (NOUN_TYPES.get(noun[:-3] + "y") if noun.endswith("ies") else None)
    )


_BEFORE = 40  # characters that are read before a name
_AFTER = 90
_BY_PERSON = frozenset("starring née nee actress actor".split())
_LIFE = re.compile(
    r" ?\((?:[^()]{0,60}?[;,] ?)?(?:(?:born|née|nee|b\.|died|d\.|c\.)\s|\d{1,2} [A-Z][a-z]+ \d{4} ?[-–—]"
    r"|[A-Z][a-z]+ \d{1,2}, \d{4} ?[-–—]|(?P<born>1\d{3}) ?[-–—] ?(?P<died>[12]\d{3})\))"
)
_KIND_IN_PARENTHESES = re.compile(r" \((?:[^()\d]{0,20}\d{4} )?(?P<noun>[a-z]+(?: [a-z]+)?)\)")
_APPOSITION = re.compile(r", (?:an?|the) ([^.;:()\n]{3,80})")
_LEAST_LIFE, _LONGEST_LIFE = 15, 110  # years


def type_from_context(text: str, start: int, end: int) -> NameType:
    """Return the type of a name by its neighbours: "the actor X", "in X", "X (born 1950)", "X, a town"."""
    if end < len(text):
        following = text[end : end + 2]
        if following == " (":
            if found := _in_parentheses(text, end):
                return found
        elif following == ", ":
            match = _APPOSITION.match(text, end)
            if match is not None and (found := type_of_noun_phrase(match[1])) != "thing":
                return found
            if text.startswith(", who ", end):
                return "person"
        elif following == " w" and text.startswith(" who ", end):
            return "person"
    if start > 2 and text[start - 1] == " " and text[start - 2].isalpha():
        head, _, word = text[max(0, start - _BEFORE) : start - 1].rpartition(" ")
        if word == "in" or word == "near":
            is_at = head.rpartition(" ")[2] not in PLAYED_IN and not text.startswith("The ", start)
            return "place" if is_at else "thing"
        if word in _BY_PERSON:
            return "person"
        if word not in NOT_BEFORE and word.islower():
            return _noun_before(word)
    return "thing"


@memoize
def _noun_before(word: str) -> NameType:
    return NOUN_TYPES.get(word, "thing")


def _in_parentheses(text: str, end: int) -> NameType | None:
    if match := _LIFE.match(text, end, end + _AFTER):
        born, died = match["born"], match["died"]
        if born is None or _LEAST_LIFE <= int(died) - int(born) <= _LONGEST_LIFE:
            return "person"
        return None
    if match := _KIND_IN_PARENTHESES.match(text, end, end + _AFTER):
        return _noun_type(match["noun"].rpartition(" ")[2])
    return None


_WORK_CONTEXT = re.compile(
    r"\b(?:album|anthem|article|ballad|book|called|cover|directed|entitled|episode|essay|film|hit|named|novel|op[eé]ra|"
    r"painting|play|poem|read|recorded|released|sang|series|show|single|song|sing|sketch|story|titled|track|tune|"
    r"video|wrote|written)s?\b"
)


def is_quoted_work(text: str, start: int, end: int) -> bool:
    """Whether a text in quotation marks is the title of a work, and not a nickname or a mentioned word."""
    if text.count(" ", start, end) > 1:
        return True
    around = text[max(0, start - _BEFORE) : start], text[end : end + _BEFORE]
    return any(map(_WORK_CONTEXT.search, around))


NameType = Literal["person", "place", "organisation", "work", "event", "thing"]


def _types(words: dict[NameType, str]) -> dict[str, NameType]:
    """Return the type of each word; of a word with several types, the first."""
    return {word: type_ for type_, each in reversed(words.items()) for word in each.split()}


NOUN_TYPES = _types(
    {
        "person": """
        academic activist actor actress admiral anthropologist archaeologist archbishop architect artist
        astronaut astronomer athlete author banker baritone bassist biologist bishop bodybuilder botanist
        boxer businessman businesswoman cartoonist chancellor chef chemist choreographer cinematographer
        clergyman coach comedian comedienne commander commentator composer conductor count countess cricketer
        critic cyclist dancer daughter designer diplomat director disciple dramatist drummer duchess duke
        economist editor emperor empress engineer entrepreneur essayist explorer filmmaker financier
        footballer founder geologist geographer golfer goalkeeper governor guitarist gymnast historian
        humorist illustrator industrialist inventor jockey journalist judge jurist keyboardist king knight
        lawyer librettist linguist lyricist man mathematician mayor merchant minister missionary model monk
        musician naturalist navigator nobleman noblewoman novelist nun nurse officer painter pastor patron
        philanthropist philosopher photographer physician physicist pianist pilot playwright player poet
        politician pope preacher president priest prince princess producer professor programmer prophet
        psychiatrist psychologist queen rapper rabbi racer runner sailor saint saxophonist scholar scientist
        screenwriter sculptor senator settler singer skater skier soldier soprano sociologist songwriter
        statesman sultan surgeon suffragette swimmer teacher tenor theologian translator trumpeter violinist
        vocalist warrior woman wrestler writer zoologist
    """,
        "place": """
        airfield airport area archipelago atoll avenue bay beach borough bridge building canal canton canyon
        cape capital castle cathedral cemetery city coast colony commune community constituency continent
        country county creek desert district estuary federation fjord forest fort gulf hamlet harbour headland
        highway hill house island islet kingdom lagoon lake lighthouse locality mansion metropolis monastery
        monument mosque mountain municipality nation neighborhood neighbourhood oblast ocean palace parish
        park peak peninsula plateau port prefecture principality province quarter reef region republic
        reservoir resort river road settlement skyscraper square stadium state station strait stream street
        suburb summit temple territory theatre tower town township tributary valley village volcano ward
        waterfall
    """,
        "organisation": """
        academy agency airline alliance army association authority band bank brand brewery broadcaster brewer
        bureau chain charity choir church club college commission committee company conference conglomerate
        congregation congress corporation council court cooperative denomination department diocese
        distributor duo ensemble enterprise faculty firm foundation franchise fraternity government group
        hospital institute institution label league legislature library magazine manufacturer ministry
        monopoly museum navy network newspaper nonprofit orchestra order organisation organization parliament
        partnership party publisher quartet regiment retailer school senate seminary society sorority squadron
        startup studio subsidiary supergroup team thinktank trio trust union university
    """,
        "work": """
        album anime anthology autobiography ballad ballet biography book cartoon comedy comic concerto
        documentary drama encyclopedia encyclopaedia episode epic essay fable film franchise game hymn journal
        manga mixtape movie musical mystery newspaper novel novella opera oratorio painting periodical play
        poem sculpture remake romance script sequel series serial show single sitcom soap song sonata
        soundtrack symphony telenovela thriller tragedy treatise trilogy western
    """,
        "event": """
        battle campaign ceremony championship championships competition conflict contest coup cup derby
        earthquake election event expedition exhibition festival final flood games genocide hurricane invasion
        marathon massacre match olympics pageant pandemic race raid rebellion referendum revolt revolution
        riot rally season siege storm strike tournament treaty uprising war
    """,
    }
)
"""Type by noun in the singular, such as river, singer, band."""

NOT_BEFORE = frozenset(
    """
    model count order show single area state house season final area play party court cape
    """.split()
)
"""Nouns that do not determine the type of the following name: "the capital of France", "the show Monday"."""

LAST_TYPES = _types(
    {
        "place": """
        Airport Archipelago Avenue Bay Beach Borough Bridge Building Canal Canyon Castle Cathedral Cemetery
        Center Centre Chapel City Coast County Creek Desert District Estate Falls Farm Forest Gallery Gulf
        Hall Highway Hills Hotel House Island Islands Kingdom Lake Manor Memorial Monument Mountain Mountains
        Municipality Ocean Oblast Palace Park Peninsula Plateau Prefecture Province Range Region Republic
        River Road Sea Square Stadium States Station Strait Street Territory Theater Theatre Tower Town
        Township Valley Village
    """,
        "organisation": """
        Academy Agency Airlines Airways Alliance Army Assembly Association Authority Bank Board Broadcasting
        Bureau Church Club Co College Commission Committee Companies Company Conference Congress Corp
        Corporation Council Court Department FC Federation Force Foundation GmbH Government Group Inc
        Institute Institution Laboratories Laboratory League Library Limited LLC Ltd Ministry Museum Navy
        Network Observatory Orchestra Organisation Organization Parliament Partnership Party Pictures Police
        PLC Press Productions Records School Senate Society Studios Symphony Team Trust Union United
        Universities University
    """,
        "event": """
        Award Awards Battle Campaign Championship Championships Conference Crisis Cup Earthquake Election
        Elections Exhibition Expedition Exposition Festival Games Invasion Massacre Olympics Open Raid
        Rebellion Revolt Revolution Siege Summit Tournament Treaty Uprising War Wars
    """,
    }
)
"""Type by the last word of a name; fewer than nouns, as titles of works may end with any word."""

FIRST_OF = _types(
    {
        "place": """
        Bay Cape City Coast County Duchy Gulf Isle Kingdom Port Principality Province Republic State Strait
        Town
    """,
        "organisation": """
        University Academy Bank Board Chamber Church College Department Faculty Government Institute League
        Ministry Museum Order Parliament House
    """,
        "event": """
        Battle Invasion Massacre Raid Sack Siege Treaty Fall Feast Conquest Revolution
    """,
    }
)
"""Type by the word before `of` in a name: University of, Battle of."""

FIRST_PLACE = frozenset(
    """
    Lake Mount Fort Port San Santa Cape
    """.split()
)
"""First words of names of places: Lake Michigan."""

DIRECTIONS = frozenset(
    """
    New North South East West Northern Southern Eastern Western Upper Lower Central
    """.split()
)
"""First words of names of places if one word follows: New York, North Dakota."""

PERSON_TITLES = frozenset(
    """
    Admiral Archbishop Baron Baroness Bishop Captain Cardinal Colonel Commodore Dame Dr Emperor Empress
    Governor King Lady Lord Mayor Miss Mr Mrs Ms Pope President Prince Princess Prof Professor Queen Rabbi Rev
    Reverend Saint Senator Sergeant Shah Sheikh Sir Sultan Tsar
    """.split()
)
"""First words of names of persons that are not titles of works."""

NO_PLACES = frozenset(
    """
    Island Highland Homeland Wonderland Roland Woodland Farmland Hyland Leland
    """.split()
)
"""Words that end like names of places, but are none."""

CALENDAR = frozenset(
    """
    January February March April May June July August September October November December Monday Tuesday
    Wednesday Thursday Friday Saturday Sunday
    """.split()
)
"""Months and days, which are not places in "in May 1970"."""

PLAYED_IN = frozenset(
    """
    acted appear appearance appeared appearing appears cast character characters degree episode featured film
    films interest interested lead performance performed played plays published role roles seen song star
    starred starring stars story used work worked written
    """.split()
)
"""Words before "in" after which a work follows: "starred in Alien"."""

GIVEN_NAMES = frozenset(
    """
    Aaron Abigail Abraham Ada Adam Adolf Adrian Agnes Ahmed Aidan Alan Albert Alejandro Alessandro Alex
    Alexander Alexandra Alexei Alfred Ali Alice Alison Allan Allen Amanda Amelia Amy Ana Anastasia Andre André
    Andrea Andreas Andrei Andrew Andy Angela Anita Anna Anne Annie Anthony Antoine Anton Antonio Archibald
    Arnold Arthur Augustus Barack Barbara Barry Ben Benedict Benjamin Bernard Bert Bertrand Beth Betty Bill
    Billy Bob Bobby Boris Brad Brenda Brian Bruce Bruno Bryan Calvin Carl Carla Carlo Carlos Carol Caroline
    Catherine Cecil Charles Charlie Charlotte Chris Christina Christine Christopher Chuck Claire Clara Clark
    Claude Colin Craig Cynthia Daniel Danny Dave David Deborah Denis Dennis Derek Diana Diane Diego Dmitri
    Dominic Donald Donna Doris Dorothy Doug Douglas Duncan Dwight Ed Eddie Edgar Edith Edmund Eduard Eduardo
    Edward Edwin Eileen Eleanor Elena Elizabeth Ella Ellen Elsie Elvis Emil Emily Emma Enrico Eric Erik Ernest
    Ernst Esther Ethan Eugene Eva Evelyn Fatima Felix Ferdinand Fernando Frances Francesco Francis Francisco
    François Frank Franklin Franz Fred Frederick Friedrich Fritz Gabriel Gareth Gary Geoff Geoffrey George
    Gerald Gerard Gertrude Gilbert Giovanni Giuseppe Glen Glenn Gordon Graham Greg Gregory Guillermo Gustav
    Hannah Hans Harold Harriet Harry Harvey Heather Hector Heinrich Helen Helena Helmut Henri Henrik Henry
    Herbert Herman Hermann Howard Hugh Hugo Ian Ibrahim Igor Ingrid Irene Isaac Isabel Isabella Ivan Jack
    Jackie Jacob Jacques Jaime James Jan Jane Janet Jason Javier Jay Jean Jeff Jeffrey Jennifer Jeremy Jerry
    Jesse Jessica Jill Jim Jimmy Joan Joanna Joe Joel Johann Johannes John Johnny Jon Jonathan Jorge José Jose
    Josef Joseph Joshua Juan Judith Judy Julia Julian Julie Julius Justin Karen Karl Kate Katherine Kathleen
    Keith Kelly Ken Kenneth Kevin Kim Klaus Konrad Kurt Lance Larry Laura Lauren Laurence Lawrence Leo Leon
    Leonard Leonardo Leonhard Leslie Lewis Liam Linda Lionel Lisa Lloyd Lorenzo Louis Louise Luca Lucas Lucy
    Ludwig Luigi Luis Luke Lynn Malcolm Manuel Marc Marcel Marco Marcus Margaret Maria María Marie Mario
    Marion Marjorie Mark Marlon Martha Martin Marvin Mary Mathias Matt Matthew Maurice Max Maximilian Megan
    Melissa Mel Michael Michel Michelle Miguel Mike Mikhail Mohammad Mohammed Monica Morris Muhammad Nancy
    Naomi Natalie Nathan Nathaniel Neil Nelson Nicholas Nick Nicola Nicolas Nicole Nigel Nikita Nikolai Nina
    Noah Noel Nora Norman Olga Oliver Oscar Otto Owen Pablo Pamela Patricia Patrick Paul Paula Pedro Peggy
    Peter Phil Philip Philippe Phillip Pierre Pietro Rachel Ralph Ramón Randy Raphael Ray Raymond Rebecca
    Reginald René Ricardo Richard Rick Rita Rob Robert Roberto Robin Rodney Roger Roland Ronald Ronnie
    Rosemary Ross Roy Rudolf Rupert Russell Ruth Ryan Sally Salvador Sam Samantha Samuel Sandra Sara Sarah
    Scott Sean Sebastian Sergei Sergio Seth Shane Sharon Sheila Shirley Sidney Sigmund Simon Sofia Sophia
    Sophie Stanley Stefan Stephanie Stephen Steve Steven Stuart Susan Susanna Suzanne Sylvia Ted Teresa Terry
    Theodor Theodore Theresa Thomas Tim Timothy Tina Tobias Todd Tom Tommy Tony Tracy Ursula Vanessa Vera
    Vernon Vincent Viktor Vladimir Walter Warren Wayne Wendy Werner Wilhelm William Winston Wolfgang Woody
    Yuri Yvonne Zachary Zoe
    """.split()
)
"""Given names that are rarely other words: a name of two to four words that begins with one is a person."""
