// What the graph page says, in English and Chinese. Names and texts of documents are never here.

"use strict";

Page.speak({
  en: {
    search: "Search entities", search_hint: "Search names…  /", hits: "Entities found", none_found: "No entity is called so.",
    picture: "Graph. Arrow keys move it, plus and minus zoom, 0 shows all; search and the panel beside it say the same in words.",
    legend: "Shown", view: "View", zoom_in: "Zoom in", zoom_out: "Zoom out", zoom_fit: "Show everything", details: "Details",
    links: "mentions", links_title: "A passage about the one mentions the other",
    by_type: "Colours show types.", to_type: "Colour by type", to_topic: "Colour by topic",
    by_topic: "Colours show topics: passages that mention the same entities.",
    hide: "Hide", hidden_one: "{name} is hidden.", hidden_here: "{n} hidden on this page. To hide them for good: {command}",
    nothing: "There are no entities here yet.", nothing_shown: "Everything is switched off.",
    entities: "{n} entities", relations: "{n} relations", passages: "{n} passages", mentions: "in {n} passages", mentions_one: "in one passage",
    left_entities: "{shown} of {all} entities are shown: those that say most.", near: "Shown is what lies around {name}.",
    left_relations: "{shown} of {all} relations between them are shown.", left_passages: "Of {n} entities no passage fits into this page.",
    lead: "Choose an entity to see what the documents say about it, or two for the path between them.",
    most: "Best connected", keys: "Keys", key_search: "search", key_move: "move the picture", key_zoom: "zoom; show everything",
    key_path: "path from the chosen entity", key_close: "close",
    also: "Also: {names}", path_to: "Path to…", surroundings: "Centre", close: "Close", more: "Show more connections",
    relations_of: "Relations", no_relations: "No relation is shown.", passages_of: "Passages", no_passages: "No passage is shown here.",
    says_mentions: "mentions", times: "{n}×", all_of: "Show all {n}", some_passages: "{n} passages with this name are shown; there may be more.",
    path: "Path", path_from: "Path from {name}: choose the other end", stop: "Cancel", steps: "{n} steps", step: "1 step",
    no_path: "No path connects {a} and {b} among what is shown.", read: "Read the passage", reading: "Reading…", failed: "That did not work: {why}",
    waiting: "Waiting for the graph…", cancelled: "The call was cancelled.", full: "Full screen", chosen: "{name}, {type}, {n} relations",
    path_said: "Path with {n} steps: {names}", other: "other types", other_topics: "other topics", untitled: "untitled", cut: "…",
  },
  zh: {
    search: "搜索实体", search_hint: "搜索名称…  /", hits: "找到的实体", none_found: "没有叫这个名字的实体。",
    picture: "图谱。方向键移动，加减号缩放，0 显示全部；搜索框和旁边的面板以文字提供同样的内容。",
    legend: "显示", view: "视图", zoom_in: "放大", zoom_out: "缩小", zoom_fit: "显示全部", details: "详情",
    links: "提及", links_title: "讲述前者的段落提到后者",
    by_type: "颜色表示类型。", to_type: "按类型着色", to_topic: "按主题着色",
    by_topic: "颜色表示主题：提到相同实体的段落。",
    hide: "隐藏", hidden_one: "已隐藏 {name}。", hidden_here: "本页隐藏了 {n} 个。永久隐藏：{command}",
    nothing: "这里还没有实体。", nothing_shown: "全部都已隐藏。",
    entities: "{n} 个实体", relations: "{n} 条关系", passages: "{n} 个段落", mentions: "出现在 {n} 个段落", mentions_one: "出现在 1 个段落",
    left_entities: "共 {all} 个实体，这里显示信息量最大的 {shown} 个。", near: "显示的是 {name} 周围的内容。",
    left_relations: "它们之间共 {all} 条关系，这里显示 {shown} 条。", left_passages: "有 {n} 个实体的段落放不进本页。",
    lead: "选择一个实体，查看文档中的相关内容；选择两个，查看它们之间的路径。",
    most: "联系最多的实体", keys: "按键", key_search: "搜索", key_move: "移动", key_zoom: "缩放；显示全部",
    key_path: "从所选实体出发的路径", key_close: "关闭",
    also: "又名：{names}", path_to: "查找路径…", surroundings: "居中", close: "关闭", more: "显示更多联系",
    relations_of: "关系", no_relations: "没有显示关系。", passages_of: "段落", no_passages: "这里没有显示段落。",
    says_mentions: "提及", times: "{n} 次", all_of: "显示全部 {n} 条", some_passages: "显示了 {n} 个出现此名称的段落，可能还有更多。",
    path: "路径", path_from: "从 {name} 出发：请选择另一端", stop: "取消", steps: "{n} 步", step: "1 步",
    no_path: "在显示的内容中，{a} 与 {b} 之间没有路径。", read: "阅读段落", reading: "读取中…", failed: "操作未成功：{why}",
    waiting: "正在等待图谱…", cancelled: "调用已取消。", full: "全屏", chosen: "{name}，{type}，{n} 条关系",
    path_said: "路径共 {n} 步：{names}", other: "其他类型", other_topics: "其他主题", untitled: "无标题", cut: "…",
  },
});

// Groups of types as extractors name them; a type of no group is shown as it is. The number is that of the colour, see base.css.
const TYPES = [
  [1, "Person", "人物", "person", "people", "人物", "人"],
  [2, "Place", "地点", "place", "location", "地点", "地名"],
  [3, "Organisation", "机构", "organisation", "organization", "company", "组织", "机构", "公司"],
  [4, "Work, law, standard", "作品、法规与标准", "work", "law", "clause", "standard", "book", "作品", "书籍"],
  [5, "Event, date", "事件与日期", "event", "date", "事件"],
  [6, "Product", "产品", "product", "version", "产品"],
  [7, "Concept", "概念", "concept", "term", "technology", "概念", "术语", "技术"],
  [8, "Code", "代码", "code", "api", "command", "option", "config", "env", "error", "file", "代码"],
  [9, "Thing", "事物", "thing", "other", "事物", "其他"],
];
const TYPE_NAMES = {
  law: ["Law", "法规"], clause: ["Clause", "条款"], standard: ["Standard", "标准"], work: ["Work", "作品"],
  event: ["Event", "事件"], date: ["Date", "日期"], version: ["Version", "版本"], term: ["Term", "术语"],
  api: ["API", "接口"], command: ["Command", "命令"], option: ["Option", "选项"], config: ["Setting", "配置项"],
  env: ["Environment variable", "环境变量"], error: ["Error", "错误"], file: ["File", "文件"],
};

const inLanguage = (names) => names[Page.language === "zh" ? 1 : 0];

/** The group that a type belongs to: its colour's number and its names. */
function typeGroup(type) {
  const row = TYPES.find((each) => each.includes(type.toLowerCase(), 3));
  return row && { number: row[0], name: inLanguage(row.slice(1, 3)) };
}

/** What a type is called in the reader's language. */
function typeName(type) {
  const own = TYPE_NAMES[type];
  return own ? inLanguage(own) : (typeGroup(type)?.name ?? type);
}
