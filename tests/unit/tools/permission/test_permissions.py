from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.tools.interface import CallContext, Tool, ToolAnnotations, ToolOutput
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.permission.rule import PermissionRule, read_rules

_HARMLESS = ToolAnnotations(read_only=True, open_world=False)
_BASE = Path("/home/我/项目")


class _Named(Tool):
    def __init__(
        self, name: str, annotations: ToolAnnotations | None = None, *, says: str = "做些事", reason: str = ""
    ) -> None:
        self._name = name
        self._annotations = annotations or ToolAnnotations()
        self._says = says
        self._reason = reason

    @property
    def name(self) -> str:
        return self._name

    @property
    def wire_name(self) -> str:
        return self._name.replace(":", "__")

    @property
    def description(self) -> str:
        return self._says

    @property
    def args_schema(self) -> Mapping[str, Any]:
        return {"type": "object"}

    @property
    def annotations(self) -> ToolAnnotations:
        return self._annotations

    @property
    def approval_reason(self) -> str:
        return self._reason

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        return ToolOutput("")


def _rule(
    action: Literal["allow", "ask", "deny"], tool: str = "*", source: str = "*", **args: str
) -> PermissionRule:
    return PermissionRule(action=action, tool=tool, source=source, args=args)


def _decided(rules: Sequence[PermissionRule], tool: Tool | str, source: str = "", **arguments: Any) -> str:
    tool = _Named(tool) if isinstance(tool, str) else tool
    return Permissions(rules, base=_BASE).decide(tool, arguments, source=source).action


@pytest.mark.parametrize(
    ("annotations", "action", "why"),
    [
        (_HARMLESS, "allow", "only reads"),
        (ToolAnnotations(read_only=True, open_world=True), "ask", "beyond this machine"),
        (ToolAnnotations(destructive=False), "ask", "may change"),
        (ToolAnnotations(), "ask", "remove or overwrite"),
    ],
)
def test_without_a_rule_only_what_can_do_no_harm_runs(
    annotations: ToolAnnotations, action: str, why: str
) -> None:
    decision = Permissions().decide(_Named("x", annotations), {})

    assert decision.action == action
    assert why in decision.reason
    assert decision.rule is None


def test_what_is_not_harmless_can_be_allowed_or_denied_as_a_whole() -> None:
    assert Permissions(otherwise="allow").decide(_Named("x"), {}).action == "allow"
    assert Permissions(otherwise="deny").decide(_Named("x"), {}).action == "deny"
    assert Permissions(otherwise="deny").decide(_Named("x", _HARMLESS), {}).action == "allow"


def test_the_strictest_of_the_rules_that_fit_counts_in_whatever_order() -> None:
    rules = [_rule("allow", "fs:*"), _rule("deny", "fs:delete"), _rule("ask", "fs:w*")]

    for order in (rules, rules[::-1]):
        assert _decided(order, "fs:read") == "allow"
        assert _decided(order, "fs:write") == "ask"
        assert _decided(order, "fs:delete") == "deny"
        assert _decided(order, "other") == "ask"


def test_the_rule_that_says_it_most_closely_is_named() -> None:
    close = PermissionRule(action="deny", tool="fs:*", args={"path": "/etc/**"}, reason="系统文件不能改。")
    permissions = Permissions([_rule("deny"), close, _rule("deny", "fs:write")], base=_BASE)

    decision = permissions.decide(_Named("fs:write"), {"path": "/etc/passwd"})

    assert (decision.rule, decision.reason) == (close, "系统文件不能改。")
    assert permissions.decide(_Named("fs:write"), {}).reason == "A rule says so: deny fs:write."
    assert close.summary == "deny fs:* path=/etc/**"


def test_rules_know_a_tool_by_the_name_of_people_and_of_models_and_who_calls() -> None:
    assert _decided([_rule("allow", "文件:*")], "文件:写") == "allow"
    assert _decided([_rule("deny", "fs__write")], "fs:write") == "deny"
    assert _decided([_rule("deny", "FS:Write")], "fs:write") == "deny"
    assert _decided([_rule("allow", "FS:Write")], "fs:write") == "ask"
    assert _decided([_rule("deny", source="http:*")], "x", source="http:token-1") == "deny"
    assert _decided([_rule("deny", source="http:*")], "x", source="user") == "ask"
    assert PermissionRule(action="ask", source="http:*").summary == "ask * source=http:*"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc/../etc/passwd",
        "//etc//passwd",
        "/tmp/../etc/passwd",
        "/ETC/Passwd",
        "\\etc\\passwd",
        "../../../etc/passwd",
        "file:///etc/passwd",
        "FILE://localhost/etc/pass%77d",
        "file:/etc/passwd",
        "/etc",
        "/etc/",
        "./../../../etc",
    ],
)
def test_a_path_cannot_be_written_so_that_a_rule_does_not_see_it(path: str) -> None:
    assert _decided([_rule("deny", "fs:*", path="/etc/**")], "fs:read", path=path) == "deny"
    assert _decided([_rule("ask", path="/etc/")], _Named("x", _HARMLESS), path=path) == "ask"
    assert _decided([_rule("allow", path="/tmp/**")], "fs:read", path=path) == "ask"


@pytest.mark.parametrize(
    ("pattern", "value", "action"),
    [
        ("/tmp/**", "/tmp/a/b", "allow"),
        ("/tmp/", "/tmp/a", "allow"),
        ("/tmp/*", "/tmp", "ask"),
        ("src/**", "src/a.py", "allow"),
        ("src/**", "./src/../src/a.py", "allow"),
        ("src/**", "src/../secret", "ask"),
        ("src/**", "/home/我/项目/src/b.py", "allow"),
        ("~/notes/*", "~/notes/a", "allow"),
        ("*.md", "笔记.md", "allow"),
        ("*.md", "../../etc/x.md", "allow"),
        ("notes*", "notes/../../../etc/passwd", "ask"),
        ("git *", "git log --oneline", "allow"),
        ("git *", "rm -rf / # git", "ask"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1/users?id=1", "allow"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1/../admin", "ask"),
        ("https://api.example.com/v1/*", "https://api.example.com/v1/%2e%2e/admin", "ask"),
        ("https://api.example.com/*", "https://api.example.com@evil.example/", "ask"),
        ("5", 5, "allow"),
        ("true", True, "allow"),
        ("null", None, "allow"),
        ("*.md", ["a.md", "b.md"], "allow"),
        ("*.md", ["a.md", "b.py"], "ask"),
        ("*.md", [], "ask"),
        ("*.md", {"deep.md": ["a.md"]}, "allow"),
        ("*.md", {"/etc/passwd": "a.md"}, "ask"),
        ("src/**", "a\\..\\src/b.py", "ask"),
        ("src/**/test_*.py", "src/test_a.py", "allow"),
        ("src/**", " src/a.py", "ask"),
        ("https://*.example.com/*", "https://a.example.com/x?next=/..", "allow"),
        ("https://*.example.com/*", "https://api.example.com:443", "allow"),
        ("https://*.example.com/*", "https://api.example.com:8443/", "ask"),
        ("https://*.example.com/*", "https://evil.example/?a=.example.com/", "ask"),
        ("https://*.example.com/*", "https://evil.example/.example.com/", "ask"),
        ("https://*.example.com/*", "https://evil.example#.example.com/", "ask"),
        ("https://*.example.com/*", "https://evil.example\\.example.com/", "ask"),
        ("https://*.example.com/*", "not https://a.example.com/", "ask"),
        ("https://api.example.com*", "https://api.example.com/v1", "allow"),
        ("https://api.example.com*", "https://api.example.com.evil.example/", "ask"),
        ("https://api.example.com*", "https://api.example.com@evil.example/", "ask"),
        ("https://例子.cn/*", "https://xn--fsqu00a.cn/页", "allow"),
        ("http*://*/*", "https://anywhere.example/", "allow"),
        ("*.md", "A.MD", "ask"),
    ],
)
def test_what_is_allowed_is_allowed_only_as_every_reading_of_it_has_it(
    pattern: str, value: Any, action: str
) -> None:
    assert _decided([_rule("allow", value=pattern)], "x", value=value) == action


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("secrets.txt", "./secrets.txt"),
        ("secrets.txt", "a/../Secrets.txt"),
        ("*.md", ["a.py", {"b": "c.md"}]),
        ("https://evil.example/*", "HTTPS://EVIL.example/x"),
        ("https://ok.example/admin*", "https://ok.example/a/../admin"),
        ("re:.*密码.*", "把密码发给我"),
        ("/home/*/.ssh/*", "~/.ssh/id"),
        (".env", "/home/我/项目/.env"),
        ("**/.env", ".env"),
        ("**/.env", "/elsewhere/.env"),
        ("/数据/é/**", normalize("NFD", "/数据/é/机密.txt")),
        ("/etc/**", " /etc/passwd\n"),
        ("/etc/**", {"/etc/passwd": "新内容"}),
        ("C:/secret/**", "\\\\?\\C:\\secret\\x"),
        ("C:\\secret\\**", "c:/secret/x"),
        ("C:/secret/key.txt", "C:\\secret\\key.txt. "),
        ("C:/secret/key.txt", "C:\\secret\\key.txt::$DATA"),
        ("//server/share/*", "\\\\?\\UNC\\server\\share\\x"),
        ("https://evil.example/*", "https://evil.example:443/x"),
        ("https://evil.example/*", "https://evil.example:8443"),
        ("https://evil.example/*", "https://evil.example./x"),
        ("https://evil.example/*", "https://user@evil.example/x"),
        ("https://evil.example/*", "https:\\\\evil.example\\x"),
        ("https://evil.example/*", " ht\ntps://evil.example/x"),
        ("https://*.evil.example/*", "https://a。evil．example/x"),
        ("https://例子.cn/*", "https://XN--FSQU00A.cn/"),
        ("https://evil.example/admin/*", "https://evil.example/%61dmin/x"),
        ("22", 22.0),
        (" *", " 前面有空格"),
    ],
)
def test_what_is_denied_is_denied_in_any_reading(
    pattern: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/我")
    monkeypatch.setenv("USERPROFILE", "/home/我")

    assert _decided([_rule("deny", value=pattern)], "x", value=value) == "deny"
    assert _decided([PermissionRule(action="deny", args={"*": pattern})], "x", other=value) == "deny"


def test_what_is_called_so_deeper_down_counts_too() -> None:
    deny, allow = [_rule("deny", path="/etc/**")], [_rule("allow", path="drafts/**")]
    deep = {"file": {"path": "/etc/passwd"}}

    assert _decided(deny, "x", **deep) == "deny"
    assert _decided(deny, "x", files=[{"path": "a"}, deep]) == "deny"
    assert _decided(allow, "x", path="drafts/a") == "allow"
    assert _decided(allow, "x", path="drafts/a", options={"path": "/etc/passwd"}) == "ask"
    assert _decided(allow, "x", options={"path": "drafts/a"}) == "ask"
    exact = [PermissionRule(action="allow", args={"options.path": "drafts/**"})]
    assert _decided(exact, "x", options={"path": "drafts/a"}, path="/etc/passwd") == "allow"
    assert _decided(exact, "x", options={"path": "/etc/passwd"}) == "ask"


def test_an_argument_that_is_not_given_fits_nothing() -> None:
    assert _decided([_rule("deny", path="*")], "x") == "ask"
    assert _decided([_rule("allow", path="*")], "x") == "ask"
    assert _decided([_rule("allow", path="*", mode="r")], "x", path="a", mode="w") == "ask"


def test_the_folder_that_a_project_is_in_is_no_part_of_what_arguments_say() -> None:
    permissions = Permissions([_rule("deny", text="*secret*")], base=Path("/home/secret/project"))

    assert permissions.decide(_Named("x", _HARMLESS), {"text": "hello"}).action == "allow"


def test_what_a_person_has_approved_is_not_asked_about_again() -> None:
    permissions = Permissions([_rule("deny", path="/etc/**")])
    first, second = permissions.for_run(), permissions.for_run()
    tool = _Named("fs:write")

    first.remember(tool)

    assert first.decide(tool, {}).action == "allow"
    assert second.decide(tool, {}).action == "ask"
    assert first.decide(tool, {"path": "/etc/passwd"}).action == "deny"
    assert first.decide(_Named("fs:write", says="现在也上传"), {}).action == "ask"

    second.remember(tool, always=True)

    assert permissions.decide(tool, {}).action == "allow"
    assert Permissions(approved=permissions.approved).for_run().decide(tool, {}).action == "allow"


def test_a_tool_that_wants_to_be_approved_is_asked_about_whatever_allows_it() -> None:
    tool = _Named("mcp:new", _HARMLESS, reason="It has not been approved yet.")
    permissions = Permissions([_rule("allow")])
    permissions.remember(tool)

    decision = permissions.decide(tool, {})

    assert (decision.action, decision.reason) == ("ask", "It has not been approved yet.")
    assert decision.rule is None, "a rule that allows has not asked"
    asks = _rule("ask", "mcp:*")
    permissions.rules = (asks,)
    assert permissions.decide(tool, {}).rule == asks
    permissions.rules = (_rule("deny"),)
    assert permissions.decide(tool, {}).action == "deny"


def test_new_rules_count_for_runs_that_are_under_way() -> None:
    permissions = Permissions([_rule("allow", "x")])
    run = permissions.for_run()
    assert run.decide(_Named("x"), {}).action == "allow"

    permissions.rules = (_rule("deny", "x"),)

    assert run.decide(_Named("x"), {}).action == "deny"
    assert run.rules == (_rule("deny", "x"),)


_PATTERNS = st.sampled_from(["*", "fs:*", "fs:read", "x", "文件:*"])
_PATHS = st.sampled_from(["/etc/**", "/tmp/*", "*.md", "re:.*a.*", "src/"])
_RULES = st.builds(
    PermissionRule,
    action=st.sampled_from(["allow", "ask", "deny"]),
    tool=_PATTERNS,
    args=st.dictionaries(st.sampled_from(["path", "*"]), _PATHS, max_size=2),
    source=st.sampled_from(["*", "user"]),
)
_TOOLS = st.builds(
    _Named,
    st.sampled_from(["fs:read", "fs:write", "x", "文件:写"]),
    st.sampled_from([_HARMLESS, ToolAnnotations()]),
)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(["path", "text"]),
    st.sampled_from(["/etc/passwd", "/tmp/../etc/x", "a.md", "src/a", "", "/tmp/ab"]),
    max_size=2,
)
_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


@given(st.lists(_RULES, max_size=6), st.randoms(), _TOOLS, _ARGUMENTS)
def test_the_order_of_rules_makes_no_difference(
    rules: list[PermissionRule], random: Any, tool: Tool, arguments: dict[str, Any]
) -> None:
    shuffled = random.sample(rules, len(rules))

    assert _decided(rules, tool, **arguments) == _decided(shuffled, tool, **arguments)


@pytest.mark.slow
@given(st.lists(_RULES, max_size=5), _RULES, _TOOLS, _ARGUMENTS)
def test_a_rule_that_is_added_never_lifts_what_another_says(
    rules: list[PermissionRule], added: PermissionRule, tool: Tool, arguments: dict[str, Any]
) -> None:
    before = Permissions(rules, base=_BASE).decide(tool, arguments)
    after = Permissions([*rules, added], base=_BASE).decide(tool, arguments)

    if before.rule is not None:
        assert _STRICTNESS[after.action] >= _STRICTNESS[before.action]
    if before.action == "deny":
        assert after.action == "deny"


_BITS = (
    "/ \\ .. . * ? ~ C: //?/ etc src 密é e\u0301 %2e file:// https:// a.example @ # \ud800 : | İ ß \n".split(
        " "
    )
)
_TRICKS = st.lists(st.sampled_from([*_BITS, " "]), max_size=8).map("".join)


@given(_TRICKS.filter(lambda text: bool(text) and "\ud800" not in text), _TRICKS)
def test_what_a_pattern_would_allow_it_would_also_deny(pattern: str, text: str) -> None:
    for value in (text, [text], {"in": text}):
        if _decided([_rule("allow", value=pattern)], "x", value=value) == "allow":
            assert _decided([_rule("deny", value=pattern)], "x", value=value) == "deny"


@pytest.mark.slow
@given(st.lists(_RULES, max_size=5), _TOOLS, _ARGUMENTS)
def test_nothing_that_people_approve_overrules_a_denial(
    rules: list[PermissionRule], tool: Tool, arguments: dict[str, Any]
) -> None:
    permissions = Permissions(rules, base=_BASE)
    denied = permissions.decide(tool, arguments).action == "deny"
    permissions.remember(tool, always=True)

    assert (permissions.decide(tool, arguments).action == "deny") == denied


def test_rules_are_read_from_what_a_file_says() -> None:
    written = [{"action": "deny", "tool": "fs:*", "args": {"path": "/etc/**"}}, {"action": "ask"}]

    assert read_rules(written) == (_rule("deny", "fs:*", path="/etc/**"), _rule("ask"))


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"action": "deny"}, "not a list of rules"),
        ("deny", "not a list of rules"),
        ([{"action": "denny"}], "permissions[0].action"),
        ([{"action": "deny"}, {"tool": "x"}], "permissions[1].action: Field required"),
        ([{"action": "deny", "tol": "x"}], "permissions[0].tol"),
        ([{"action": "deny", "args": {"path": "re:("}}], "not a usable regular expression"),
        ([{"action": "deny", "tool": ""}], "must not be empty"),
        ([{"action": "deny", "tool": "半\ud800"}], "lone surrogate"),
        (["deny"], "permissions[0]"),
    ],
)
def test_a_rule_that_is_wrong_is_named(written: object, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_rules(written)

    assert told in caught.value.message
    assert '{"action": "deny"' in caught.value.advice
