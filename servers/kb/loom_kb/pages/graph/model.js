// The graph: entities, what connects them, and questions about both. Nothing here draws or speaks.

"use strict";

class Graph {
  /** Entities: {name, type, mentions, also, topic, spans, x, y, r, edges}; the topic is a number, or -1. */
  nodes = [];
  /** Relations: {from, to, predicate, support, span}; without a predicate one that says: a passage mentions. */
  edges = [];
  #byName = new Map();
  #byRelation = new Map();

  /** What a page holds, as Python packs it: see graph_page.py. */
  static of(data) {
    const graph = new Graph();
    for (const [name, type, mentions, x, y, also, topic, spans] of data.entities) {
      graph.#push({ name, type: data.types[type], mentions, also, topic, x, y, spans: triples(spans) });
    }
    for (const [from, predicate, to, support, ...span] of data.relations) {
      graph.#connect({ from: graph.nodes[from], to: graph.nodes[to], predicate: data.predicates[predicate], support, span: triples(span)[0] });
    }
    graph.#measure();
    return graph;
  }

  /** Adds what a tool has told; what is known already is brought up to date. Returns the new entities. */
  merge({ entity, also_known_as: also, entities, relations }) {
    const known = this.nodes.length;
    const met = (name) => this.named(name) ?? this.#push({ name, type: "thing", mentions: 0, also: [], topic: -1, spans: [], x: 0, y: 0 });
    Object.assign(met(entity), { also, folded: [entity, ...also].map(folded) });
    for (const { name, type, mentions } of entities) Object.assign(met(name), { type, mentions });
    for (const { subject, predicate, object, support, evidence, passage_id: passage } of relations) {
      const key = JSON.stringify([subject, predicate, object]);
      if (!this.#byRelation.has(key)) this.#byRelation.set(key, this.#connect({ from: met(subject), to: met(object), predicate, support, evidence, passage }));
    }
    this.#measure();
    return this.nodes.slice(known);
  }

  named(name) { return this.#byName.get(name); }

  /** The entities at the other ends of an entity's relations. */
  around(node) { return new Set(node.edges.map((edge) => (edge.from === node ? edge.to : edge.from))); }

  /** Entities whose names have all words of a text: the same name first, then what begins with it, then the best connected. */
  search(text, limit = 12) {
    const wanted = folded(text).trim();
    if (!wanted) return [];
    const words = wanted.split(/\s+/);
    const found = [];
    for (const node of this.nodes) {
      let best = 9;
      for (const name of node.folded) {
        if (name === wanted) best = 0;
        else if (name.startsWith(wanted)) best = Math.min(best, 1);
        else if (name.includes(` ${wanted}`)) best = Math.min(best, 2);
        else if (words.every((word) => name.includes(word))) best = Math.min(best, 3);
      }
      if (best < 9) found.push([best, node]);
    }
    found.sort(([a, one], [b, other]) => a - b || other.edges.length - one.edges.length || other.mentions - one.mentions);
    return found.slice(0, limit).map(([, node]) => node);
  }

  /** The shortest path as its relations in order, or null; what is said counts a little less than what is mentioned. */
  path(start, end, isShown = () => true) {
    const cost = new Map([[start, 0]]);
    const by = new Map();
    const waiting = [[start]]; // entities by cost
    for (let spent = 0; spent < waiting.length; spent += 1) {
      for (const node of waiting[spent] ?? []) {
        if (cost.get(node) !== spent) continue;
        if (node === end) return this.#walked(by, start, end);
        for (const edge of node.edges) {
          const next = edge.from === node ? edge.to : edge.from;
          const sum = spent + (edge.predicate ? 5 : 6);
          if (!isShown(edge) || next !== end && !isShown(next) || sum >= (cost.get(next) ?? Infinity)) continue;
          cost.set(next, sum);
          by.set(next, edge);
          (waiting[sum] ??= []).push(next);
        }
      }
    }
    return null;
  }

  #walked(by, start, end) {
    const path = [];
    for (let node = end; node !== start;) {
      const edge = by.get(node);
      path.unshift(edge);
      node = edge.from === node ? edge.to : edge.from;
    }
    return path;
  }

  #push(node) {
    node.edges = [];
    node.folded = [node.name, ...node.also].map(folded);
    this.nodes.push(node);
    if (!this.#byName.has(node.name)) this.#byName.set(node.name, node);
    return node;
  }

  #connect(edge) {
    this.edges.push(edge);
    edge.from.edges.push(edge);
    if (edge.to !== edge.from) edge.to.edges.push(edge);
    return edge;
  }

  #measure() {
    for (const node of this.nodes) node.r = 3.2 + 1.6 * Math.sqrt(Math.min(node.edges.length, 60));
  }
}

/** Letters as a search compares them: full-width and half-width, large and small, with and without accents. */
function folded(text) {
  return text.normalize("NFKD").replace(/\p{Mn}/gu, "").toLowerCase();
}

function triples(numbers) {
  const found = [];
  for (let i = 0; i + 2 < numbers.length; i += 3) found.push({ passage: numbers[i], start: numbers[i + 1], end: numbers[i + 2] });
  return found;
}
