// The panel beside the picture: everything that the picture shows, in words.

"use strict";

const { element, say } = Page;
const number = (n) => n.toLocaleString(Page.language === "zh" ? "zh-CN" : "en-US");
const ROWS = 40; // of a list, before "show all"

class Panel {
  #root; #graph; #data; #choose; #actions; #notes;

  /** choose(node) is called when a person picks an entity; actions: path(node), centre(node), close(), hide(node), and of an app more(node), read(id); notes() are more to know of the whole. */
  constructor(root, graph, data, { choose, actions, notes = () => [] }) {
    this.#root = root;
    this.#graph = graph;
    this.#data = data;
    this.#choose = choose;
    this.#actions = actions;
    this.#notes = notes;
  }

  /** What this page is, where nothing is chosen. */
  overview() {
    const { nodes, edges } = this.#graph;
    const { focus, inAll, withoutPassages, name, description, passages = [] } = this.#data;
    const said = edges.filter((edge) => edge.predicate).length;
    const notes = [];
    if (Number.isInteger(focus)) notes.push(say("near", { name: nodes[focus].name }));
    else if (inAll && inAll.entities > nodes.length) notes.push(say("left_entities", { shown: number(nodes.length), all: number(inAll.entities) }));
    if (inAll && inAll.relations > said) notes.push(say("left_relations", { shown: number(said), all: number(inAll.relations) }));
    if (withoutPassages) notes.push(say("left_passages", { n: number(withoutPassages) }));
    notes.push(...this.#notes());
    const best = nodes.toSorted((one, other) => other.edges.length - one.edges.length).slice(0, 12);
    const keys = [["/", "key_search"], ["← ↑ → ↓", "key_move"], ["+ − 0", "key_zoom"], ["⇧ click", "key_path"], ["Esc", "key_close"]];
    this.#show(
      element("div", { class: "top" }, element("h2", { text: name ?? say("details") })),
      description ? element("p", { class: "soft small", text: description }) : "",
      element("p", { class: "chips" },
        ...[["entities", nodes.length], ["relations", said], ["passages", passages.length]].filter(([, n]) => n)
          .map(([key, n]) => element("span", { class: "chip", text: say(key, { n: number(n) }) }))),
      notes.length ? element("p", { class: "note plain", text: notes.join(" ") }) : "",
      nodes.length ? element("p", { class: "lead", text: say("lead") }) : "",
      ...(best.length ? [this.#heading("most"), element("ul", { class: "rows" }, ...best.map((node) => (
        element("li", {}, element("div", { class: "line" }, this.#entity(node), element("span", { class: "times", text: typeName(node.type) })))
      )))] : []),
      this.#heading("keys"),
      element("dl", { class: "keys" }, ...keys.flatMap(([key, what]) => [element("dt", { text: key }), element("dd", { text: say(what) })])),
    );
  }

  /** All about an entity. */
  entity(node) {
    const { path, centre, close, more, hide } = this.#actions;
    const button = (key, action, kind = "") => element("button", { type: "button", class: kind, text: say(key), onclick: action });
    const relations = node.edges.toSorted((one, other) => (
      Boolean(other.predicate) - Boolean(one.predicate) || other.support - one.support
    ));
    const spans = Map.groupBy(node.spans, (span) => span.passage);
    this.#show(
      this.#top(node.name, close),
      element("p", { class: "chips" },
        element("span", { class: "chip" }, this.#dot(node), typeName(node.type)),
        node.mentions ? element("span", { class: "chip", text: say(node.mentions === 1 ? "mentions_one" : "mentions", { n: number(node.mentions) }) }) : ""),
      node.also.length ? element("p", { class: "lead", text: say("also", { names: node.also.join(Page.language === "zh" ? "、" : ", ") }) }) : "",
      element("div", { class: "actions" },
        button("path_to", () => path(node), "primary"), button("surroundings", () => centre(node)),
        more ? button("more", () => more(node)) : "", hide ? button("hide", () => hide(node)) : ""),
      this.#heading("relations_of", relations.length),
      relations.length ? this.#list(relations, (edge) => this.#relation(edge, node)) : element("p", { class: "soft small", text: say("no_relations") }),
      ...(this.#data.passages ? [
        this.#heading("passages_of", spans.size),
        ...[...spans].map(([passage, each]) => this.#passage(passage, each)),
        element("p", { class: "lead", text: spans.size ? (node.mentions > node.spans.length ? say("some_passages", { n: spans.size }) : "") : say("no_passages") }),
      ] : []),
    );
  }

  /** A path as its steps; null where there is none. */
  path(start, end, path) {
    const steps = [];
    let node = start;
    for (const edge of path ?? []) {
      steps.push(this.#relation(edge, node, { both: true }));
      node = edge.from === node ? edge.to : edge.from;
    }
    this.#show(
      this.#top(`${start.name} → ${end.name}`, this.#actions.close),
      path ? element("p", { class: "chips" }, element("span", { class: "chip accent", text: say(path.length === 1 ? "step" : "steps", { n: path.length }) })) : "",
      path ? element("ol", { class: "rows" }, ...steps) : element("p", { class: "note plain", text: say("no_path", { a: start.name, b: end.name }) }),
      element("div", { class: "actions" }, element("button", { type: "button", text: start.name, onclick: () => this.#choose(start) }),
        element("button", { type: "button", text: end.name, onclick: () => this.#choose(end) })),
    );
  }

  /** Only words: what is waited for, or what went wrong. */
  words(text) { this.#show(element("p", { class: "empty", text })); }

  #show(...parts) {
    this.#root.replaceChildren(...parts.filter(Boolean));
    this.#root.scrollTop = 0;
  }

  #top(name, close) {
    return element("div", { class: "top" }, element("h2", { text: name }),
      element("button", { type: "button", class: "quiet close", text: "×", "aria-label": say("close"), title: say("close"), onclick: close }));
  }

  #heading(key, count) {
    return element("h3", {}, say(key), count === undefined ? "" : element("span", { class: "number", text: number(count) }));
  }

  #dot(node) { return element("span", { class: "dot", style: { color: `var(${node.colour})` } }); }

  #entity(node) {
    return element("button", { type: "button", class: "entity", onclick: () => this.#choose(node) }, this.#dot(node), element("span", { text: node.name }));
  }

  #list(items, row) {
    const list = element("ul", { class: "rows" }, ...items.slice(0, ROWS).map(row));
    if (items.length <= ROWS) return list;
    const all = element("button", { type: "button", class: "quiet", text: say("all_of", { n: number(items.length) }) });
    all.addEventListener("click", () => { list.append(...items.slice(ROWS).map(row)); all.remove(); });
    return element("div", {}, list, all);
  }

  /** A relation as seen from one of its ends. */
  #relation(edge, node, { both = false } = {}) {
    const forth = edge.from === node;
    const says = edge.predicate || say("says_mentions");
    const quote = edge.span ? this.#quote(edge.span) : edge.evidence ? [edge.evidence] : [];
    const row = element("li", {},
      element("div", { class: "line" },
        both ? this.#entity(node) : "",
        element("span", { class: "says", text: forth ? `${says} →` : `← ${says}` }),
        this.#entity(forth ? edge.to : edge.from),
        edge.support > 1 ? element("span", { class: "times", text: say("times", { n: number(edge.support) }) }) : ""),
      quote.length ? element("blockquote", {}, ...quote) : "");
    if (edge.passage && this.#actions.read) row.append(this.#reader(edge.passage));
    return row;
  }

  #reader(id) {
    const button = element("button", { type: "button", class: "quiet small", text: say("read") });
    button.addEventListener("click", async () => {
      button.disabled = true;
      button.textContent = say("reading");
      try {
        const { title, uri, text } = await this.#actions.read(id);
        button.replaceWith(element("article", {}, element("header", { text: title || say("untitled") }), element("div", { class: "text", text }), this.#source(uri)));
      } catch (error) {
        button.replaceWith(element("p", { class: "note bad", text: say("failed", { why: error.message }) }));
      }
    });
    return button;
  }

  /** What a passage says of a relation, with some words around it. */
  #quote({ passage, start, end }) {
    const text = this.#data.passages[passage][1];
    const [from, to] = [Math.max(0, start - 40), Math.min(text.length, end + 40)];
    // No word and no character is cut in half; Chinese has no gaps to look for.
    const before = from ? `… ${text.slice(from, start).replace(/^(?:[\uDC00-\uDFFF]|(?!\p{sc=Han})[\p{L}\p{N}])+/u, "")}` : text.slice(0, start);
    const after = to < text.length ? `${Page.beginning(text.slice(end), to - end).replace(/(?:(?!\p{sc=Han})[\p{L}\p{N}])+$/u, "")} …` : text.slice(end);
    return [before, element("mark", { text: text.slice(start, end) }), after];
  }

  #passage(index, spans) {
    const [document, text, heading, before, after] = this.#data.passages[index];
    const [title, uri] = this.#data.documents[document];
    const parts = before ? ["… "] : [];
    let at = 0;
    for (const { start, end } of spans.toSorted((one, other) => one.start - other.start)) {
      if (start < at || end <= start) continue;
      parts.push(text.slice(at, start), element("mark", { text: text.slice(start, end) }));
      at = end;
    }
    parts.push(text.slice(at), after ? " …" : "");
    const headings = heading.filter((each) => each !== title).join(" › ");
    return element("article", {},
      element("header", {}, title || say("untitled"), headings ? element("span", { class: "faint", text: ` › ${headings}` }) : ""),
      element("div", { class: "text" }, ...parts), this.#source(uri));
  }

  #source(uri) {
    const web = /^https?:\/\//.test(uri);
    return element("footer", {}, web ? element("a", { href: uri, target: "_blank", rel: "noopener noreferrer", text: uri }) : uri);
  }
}
