// The page itself: search, legend, keys, and who tells whom.

"use strict";

const find = (id) => document.getElementById(id);
const { data } = Page;
const graph = Graph.of(data);
const hidden = new Set(); // types, and "links"
const LEGEND = 9; // types with a colour of their own
const FREE = [10, 6, 7, 5, 8, 4, 3, 2, 1]; // colours for what has none of its own
let groups = []; // [{key, name, colour, count}], the most frequent first
const topics = data.topics ?? [];
const hasTopics = new Set(graph.nodes.map(({ topic }) => topic)).size > 1;
const hiddenNodes = new Set(); // entities that the reader has hidden
let byType = false; // what the reader has switched to, where there is something to switch
let chosen = null; // entity, or {start, end, path}
let pathFrom = null;

const isShown = (each) => (each.edges ? !hidden.has(each.group) && !hiddenNodes.has(each) : each.predicate !== "" || !hidden.has("links"));
group();
const picture = new Picture(find("picture"), graph, { isShown, onPick: pick, onHover: hover });
const actions = { path: startPath, centre: (node) => picture.centre(node), close, hide }; // app.js has others
const panel = new Panel(find("panel"), graph, data, { choose: (node) => choose(node), actions, notes });

/** Puts entities into groups of a colour each: by their topics, or by their types. */
function group() {
  if (hasTopics && !byType) groupByTopic();
  else groupByType();
}

/** The topics with most entities have a colour each, and are called by their best terms. */
function groupByTopic() {
  const counts = new Map();
  for (const { topic } of graph.nodes) if (topic >= 0) counts.set(topic, (counts.get(topic) ?? 0) + 1);
  const largest = [...counts].sort(([one, a], [other, b]) => b - a || one - other).slice(0, LEGEND - 1).map(([topic]) => topic);
  const found = new Map();
  for (const node of graph.nodes) {
    const place = largest.indexOf(node.topic);
    const key = place < 0 ? "other" : `topic ${node.topic}`;
    const name = () => (place < 0 ? say("other_topics") : Page.shortened(topics[node.topic], 36));
    const entry = found.get(key) ?? { key, count: 0, name, colour: `--kind-${FREE.toReversed()[place] ?? 9}` };
    entry.count += 1;
    found.set(key, entry);
    Object.assign(node, { group: key, colour: entry.colour });
  }
  groups = [...found.values()];
  groups.sort((one, other) => (one.key === "other") - (other.key === "other") || other.count - one.count);
}

/** Known types have a colour of their own, the others what is left. */
function groupByType() {
  const counts = new Map();
  for (const node of graph.nodes) counts.set(node.type, (counts.get(node.type) ?? 0) + 1);
  const found = new Map();
  const sorted = [...counts].sort(([, one], [, other]) => other - one);
  for (const [type, count] of sorted) {
    const known = typeGroup(type)?.number;
    const key = known ?? type;
    const full = !found.has(key) && found.size >= LEGEND;
    const into = full ? "other" : key;
    const entry = found.get(into) ?? { key: into, type: full ? null : type, count: 0, types: new Set(), known };
    entry.count += count;
    found.set(into, entry);
    entry.types.add(type);
  }
  const taken = new Set([...found.values()].map((entry) => entry.known));
  const rest = FREE.filter((colour) => !taken.has(colour));
  groups = [...found.values()];
  for (const entry of groups) {
    entry.colour = `--kind-${entry.known ?? (entry.type && rest.shift()) ?? 9}`;
    entry.name = () => (entry.type === null ? say("other") : (typeGroup(entry.type)?.name ?? entry.type));
  }
  const of = new Map(groups.flatMap((entry) => [...entry.types].map((type) => [type, entry])));
  for (const node of graph.nodes) { node.group = of.get(node.type).key; node.colour = of.get(node.type).colour; }
}

function drawLegend() {
  const toggle = (key, label, mark, count, title) => Page.element("button", {
    type: "button", title, "aria-pressed": String(!hidden.has(key)),
    onclick: () => { hidden.delete(key) || hidden.add(key); drawLegend(); show(); },
  }, mark, label, count === null ? "" : Page.element("span", { class: "number", text: number(count) }));
  const dot = (colour) => Page.element("span", { class: "dot", style: { color: `var(${colour})` } });
  const buttons = groups.map(({ key, name, colour, count }) => toggle(key, name(), dot(colour), count));
  const links = graph.edges.filter((edge) => edge.predicate === "").length;
  if (links) buttons.push(toggle("links", say("links"), Page.element("span", { class: "dash" }), links, say("links_title")));
  if (hasTopics) buttons.push(Page.element("button", { type: "button", id: "colouring", onclick: recolour, text: say(byType ? "to_topic" : "to_type") }));
  const had = find("legend").contains(document.activeElement) ? [...find("legend").querySelectorAll("button")].indexOf(document.activeElement) : -1;
  find("legend").replaceChildren(find("legend").firstElementChild, ...buttons);
  buttons[had]?.focus();
  find("legend").hidden = !buttons.length;
}

/** Colours by type instead of by group, or the other way round. */
function recolour() {
  byType = !byType;
  const links = hidden.has("links");
  hidden.clear();
  if (links) hidden.add("links");
  refresh();
  find("said").textContent = say(byType ? "by_type" : "by_topic");
}

/** What there is to know of the whole: what colours show, and how to hide for good what is hidden here. */
function notes() {
  const told = hasTopics ? [say(byType ? "by_type" : "by_topic")] : [];
  if (!hiddenNodes.size) return told;
  const quoted = [...hiddenNodes].map(({ name }) => `"${name.replace(/["$`\\]/g, "\\$&")}"`);
  return [...told, say("hidden_here", { n: hiddenNodes.size, command: `loom-kb aliases --kb ${data.name} --hide ${quoted.join(" ")}` })];
}

/** Takes an entity off the picture. */
function hide(node) {
  hiddenNodes.add(node);
  close();
  find("said").textContent = say("hidden_one", { name: node.name });
}

/** Brings picture and panel in step with what is chosen. */
function show() {
  const path = chosen?.start ? chosen : null;
  picture.selected = path ? null : chosen;
  picture.path = path?.path ?? null;
  picture.draw();
  if (path) panel.path(path.start, path.end, path.path);
  else if (chosen) panel.entity(chosen);
  else panel.overview();
  const none = !graph.nodes.some(isShown);
  find("nothing").hidden = !none;
  find("nothing").textContent = none ? say(graph.nodes.length ? "nothing_shown" : data.waits ? "waiting" : "nothing") : "";
}

function choose(node, { centre = false } = {}) {
  endPath();
  hidden.delete(node.group);
  hiddenNodes.delete(node);
  drawLegend();
  chosen = node;
  show();
  if (centre || !picture.sees(node)) picture.centre(node);
  find("said").textContent = say("chosen", { name: node.name, type: typeName(node.type), n: node.edges.length });
}

function close() {
  endPath();
  chosen = null;
  show();
  find("said").textContent = "";
}

function startPath(node) {
  pathFrom = node;
  find("pathing").replaceChildren(say("path_from", { name: node.name }), Page.element("button", { type: "button", class: "quiet", text: "×", "aria-label": say("stop"), onclick: endPath }));
  find("pathing").hidden = false;
  find("search").focus();
}

function endPath() {
  pathFrom = null;
  find("pathing").hidden = true;
}

function showPath(start, end) {
  endPath();
  const path = graph.path(start, end, isShown);
  chosen = { start, end, path };
  show();
  const nodes = [start, end, ...(path ?? []).flatMap((edge) => [edge.from, edge.to])];
  if (!nodes.every((node) => picture.sees(node))) picture.fit([...new Set(nodes)]);
  find("said").textContent = path ? say("path_said", { n: path.length, names: [...new Set(nodes)].map((node) => node.name).join(", ") }) : say("no_path", { a: start.name, b: end.name });
}

/** An entity, or the ground, was clicked, or an entity found by its name. */
function pick(node, event) {
  if (!node) { if (!pathFrom) close(); return; }
  const from = pathFrom ?? (event?.shiftKey && chosen?.edges ? chosen : null);
  if (from && from !== node) showPath(from, node);
  else choose(node, { centre: !event });
}

function hover(node, event) {
  const tip = find("tip");
  tip.hidden = !node || event.pointerType === "touch";
  if (tip.hidden) return;
  tip.textContent = `${node.name} · ${typeName(node.type)}`;
  const box = find("stage").getBoundingClientRect();
  const [x, y] = [event.clientX - box.x, event.clientY - box.y];
  tip.style.left = `${Math.min(x + 14, box.width - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y > 60 ? y - tip.offsetHeight - 10 : y + 18}px`;
}

// Search, as the combobox pattern of WAI-ARIA has it: the cursor stays in the field, a row is marked.
const field = find("search");
const hits = find("hits");
let found = [];
let marked = 0;

function search() {
  found = graph.search(field.value);
  marked = 0;
  const open = field.value.trim() !== "";
  hits.hidden = !open;
  field.setAttribute("aria-expanded", String(open));
  hits.replaceChildren(...found.map((node, index) => Page.element("li", {
    id: `hit-${index}`, role: "option", "aria-selected": String(index === 0),
    onpointerdown: (event) => { event.preventDefault(); take(index); },
  }, Page.element("span", { class: "dot", style: { color: `var(${node.colour})` } }),
  Page.element("span", { class: "grow", text: node.name }), Page.element("span", { class: "faint", text: typeName(node.type) }))));
  if (open && !found.length) hits.append(Page.element("li", { class: "none", text: say("none_found") }));
  mark(0);
}

function mark(index) {
  hits.children[marked]?.setAttribute("aria-selected", "false");
  marked = found.length ? (index + found.length) % found.length : 0;
  hits.children[marked]?.setAttribute("aria-selected", "true");
  hits.children[marked]?.scrollIntoView({ block: "nearest" });
  if (found.length && !hits.hidden) field.setAttribute("aria-activedescendant", `hit-${marked}`);
  else field.removeAttribute("aria-activedescendant");
}

function take(index) {
  const node = found[index];
  if (!node) return;
  field.value = "";
  search();
  pick(node);
}

field.addEventListener("input", search);
field.addEventListener("blur", () => { hits.hidden = true; field.setAttribute("aria-expanded", "false"); });
field.addEventListener("focus", () => { if (field.value) search(); });
field.addEventListener("keydown", (event) => {
  if (event.isComposing) return; // Enter ends what an input method composes, and takes nothing
  if (event.key === "ArrowDown") mark(marked + 1);
  else if (event.key === "ArrowUp") mark(marked - 1);
  else if (event.key === "Enter") take(marked);
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (field.value) { field.value = ""; search(); } else if (pathFrom) endPath();
    else close();
  } else if (event.key === "/" && document.activeElement !== field) {
    event.preventDefault();
    field.focus();
  }
});
find("zoom").addEventListener("click", (event) => {
  const action = event.target.dataset.zoom;
  if (action === "fit") picture.fit();
  else if (action) picture.zoom(action === "in" ? 1.4 : 1 / 1.4);
});

/** After entities came or the language changed. */
function refresh() {
  group();
  drawLegend();
  show();
}

find("name").textContent = data.name ?? "";
Page.onChange(refresh);
refresh();
picture.fit();
if (Number.isInteger(data.focus)) choose(graph.nodes[data.focus]);
