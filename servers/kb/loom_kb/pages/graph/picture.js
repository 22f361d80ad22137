// The picture of a graph on a canvas: drawing it, moving it, and finding what is under a pointer.

"use strict";

const LINES = 8000; // drawn while the picture moves

class Picture {
  selected = null; // an entity
  path = null; // relations in order
  #canvas; #graph; #isShown; #onPick; #onHover;
  #width = 0;
  #height = 0;
  #view = { x: 0, y: 0, zoom: 1 }; // what stands in the middle, and pixels for a unit
  #hover = null;
  #pointers = new Map();
  #gesture = null;
  #fitted = null; // what fills the picture, until a person moves it
  #asked = false;
  #rests = true; // false while it moves: then some of many lines are left out
  #resting = 0; // timer
  #colours = {};
  #widths = new Map();

  /** onPick(node or null, event) and onHover(node or null, event) tell what a person does. */
  constructor(canvas, graph, { isShown, onPick, onHover }) {
    this.#canvas = canvas;
    this.#graph = graph;
    this.#isShown = isShown;
    this.#onPick = onPick;
    this.#onHover = onHover;
    new ResizeObserver(() => this.#resize()).observe(canvas);
    Page.onChange(() => this.#dress());
    this.#dress();
    this.#resize();
    this.#listen();
  }

  /** Draws as soon as the browser is ready to show it. */
  draw() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => { this.#asked = false; this.#paint(); });
  }

  /** Shows everything, or some entities. */
  fit(nodes = this.#graph.nodes.filter(this.#isShown)) {
    this.#fitted = nodes;
    if (!nodes.length) return;
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y } of nodes) {
      left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
    }
    const [across, down] = [this.#width - Math.min(90, this.#width * 0.2), this.#height - Math.min(130, this.#height * 0.3)];
    const zoom = Math.min(across / (right - left + 1), down / (bottom - top + 1), 1.8);
    this.#view = { x: (left + right) / 2, y: (top + bottom) / 2 + 18 / Math.max(zoom, 0.02), zoom: Math.max(zoom, 0.02) };
    this.draw();
  }

  /** Brings an entity into the middle, with what it is related to where that is near enough to be read. */
  centre(node) {
    this.fit([node, ...this.#graph.around(node)].filter(this.#isShown));
    const zoom = Math.max(this.#view.zoom, 0.55);
    if (zoom === this.#view.zoom) return;
    this.#fitted = null;
    this.#view = { x: node.x, y: node.y, zoom };
  }

  /** Whether an entity is to be seen without moving the picture. */
  sees(node) {
    const [x, y] = this.at(node);
    return x > 30 && y > 30 && x < this.#width - 30 && y < this.#height - 30;
  }

  zoom(factor, x = this.#width / 2, y = this.#height / 2) {
    const zoom = Math.min(Math.max(this.#view.zoom * factor, 0.02), 12);
    const [dx, dy] = [x - this.#width / 2, y - this.#height / 2];
    this.#view.x += dx / this.#view.zoom - dx / zoom;
    this.#view.y += dy / this.#view.zoom - dy / zoom;
    this.#view.zoom = zoom;
    this.#moves();
  }

  move(dx, dy) {
    this.#view.x -= dx / this.#view.zoom;
    this.#view.y -= dy / this.#view.zoom;
    this.#moves();
  }

  #moves() {
    this.#fitted = null;
    this.#rests = false;
    clearTimeout(this.#resting);
    this.#resting = setTimeout(() => { this.#rests = true; this.draw(); }, 140);
    this.draw();
  }

  /** Where an entity is on the canvas, in CSS pixels. */
  at({ x, y }) {
    const { x: left, y: top, zoom } = this.#view;
    return [(x - left) * zoom + this.#width / 2, (y - top) * zoom + this.#height / 2];
  }

  /** The entity under a point, or the nearest within a finger's reach. */
  under(x, y, reach = 4) {
    let best = null;
    let least = Infinity;
    for (const node of this.#graph.nodes) {
      const [at, down] = this.at(node);
      const far = Math.hypot(at - x, down - y) - this.#size(node);
      if (far < Math.min(reach, least) && this.#isShown(node)) [best, least] = [node, far];
    }
    return best;
  }

  #size(node) {
    return Math.max(this.#graph.nodes.length > 200 ? 1.4 : 3.4, node.r * Math.min(Math.max(this.#view.zoom, 0.12) ** 0.7, 2.2));
  }

  #dress() {
    this.#colours = {};
    for (const name of ["ground", "ink", "ink-soft", "ink-faint", "line-strong", "accent"]) this.#colours[name] = Page.colour(`--${name}`);
    this.draw();
  }

  #resize() {
    const scale = window.devicePixelRatio || 1;
    this.#width = this.#canvas.clientWidth;
    this.#height = this.#canvas.clientHeight;
    this.#canvas.width = Math.round(this.#width * scale);
    this.#canvas.height = Math.round(this.#height * scale);
    if (this.#fitted) this.fit(this.#fitted);
    this.#paint(); // at once: a resized canvas is empty
  }

  #paint() {
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [this.#width, this.#height];
    const context = this.#canvas.getContext("2d", { alpha: false });
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = this.#colours.ground;
    context.fillRect(0, 0, width, height);
    const places = new Map();
    for (const node of this.#graph.nodes) if (this.#isShown(node)) places.set(node, this.at(node));
    const bright = this.#bright();
    this.#paintEdges(context, places, bright, width, height);
    const within = [...places].filter(([node, [x, y]]) => {
      const r = this.#size(node);
      return x > -r && y > -r && x < width + r && y < height + r;
    });
    this.#paintNodes(context, within, bright);
    this.#paintNames(context, within, bright, width, height);
  }

  /** What stands out: the path, or the chosen entity and those around it; null where nothing is chosen. */
  #bright() {
    if (this.path) {
      return { edges: new Set(this.path), nodes: new Set(this.path.flatMap((edge) => [edge.from, edge.to])) };
    }
    const node = this.selected;
    return node && { edges: new Set(node.edges), nodes: this.#graph.around(node).add(node) };
  }

  #paintEdges(context, places, bright, width, height) {
    const lines = { said: new Path2D(), mentioned: new Path2D(), bright: new Path2D() };
    let count = 0;
    const { edges } = this.#graph; // the best supported first
    for (const edge of this.#rests || edges.length <= LINES ? edges : edges.slice(0, LINES)) {
      const from = places.get(edge.from);
      const to = places.get(edge.to);
      if (!from || !to || !this.#isShown(edge)) continue;
      if (Math.max(from[0], to[0]) < 0 || Math.max(from[1], to[1]) < 0) continue;
      if (Math.min(from[0], to[0]) > width || Math.min(from[1], to[1]) > height) continue;
      const line = bright?.edges.has(edge) ? lines.bright : edge.predicate ? lines.said : lines.mentioned;
      line.moveTo(from[0], from[1]);
      line.lineTo(to[0], to[1]);
      count += 1;
    }
    // The more lines there are the fainter each, so that a dense graph stays a picture.
    const faint = Math.min(0.75, 26 / Math.sqrt(count + 1)) * (bright ? 0.3 : 1);
    context.strokeStyle = this.#colours["line-strong"];
    context.lineWidth = 1;
    context.globalAlpha = Math.max(faint, 0.05);
    context.stroke(lines.said);
    context.globalAlpha = Math.max(faint * 0.5, 0.04);
    context.stroke(lines.mentioned);
    context.strokeStyle = this.#colours.accent;
    context.globalAlpha = this.path ? 1 : 0.6;
    context.lineWidth = this.path ? 2.6 : 1.3;
    context.stroke(lines.bright);
    context.globalAlpha = 1;
  }

  #paintNodes(context, within, bright) {
    const discs = new Map(); // by colour: one path each
    for (const [node, [x, y]] of within) {
      const key = bright && !bright.nodes.has(node) ? `${node.colour} dim` : node.colour;
      if (!discs.has(key)) discs.set(key, new Path2D());
      const r = this.#size(node);
      const disc = discs.get(key);
      if (r < 2) disc.rect(x - r, y - r, 2 * r, 2 * r); // nobody sees the difference, and it takes half the time
      else {
        disc.moveTo(x + r, y);
        disc.arc(x, y, r, 0, 7);
      }
    }
    const dimFirst = [...discs].sort(([a], [b]) => b.endsWith(" dim") - a.endsWith(" dim"));
    for (const [key, disc] of dimFirst) {
      const [colour, dim] = key.split(" dim");
      context.globalAlpha = dim === undefined ? 1 : 0.22;
      context.fillStyle = this.#colours[colour] ??= Page.colour(colour);
      context.fill(disc);
    }
    context.globalAlpha = 1;
    for (const [node, colour] of [[this.#hover, "ink-soft"], [this.selected, "accent"]]) {
      if (!node || !this.#isShown(node)) continue;
      const [x, y] = this.at(node);
      context.beginPath();
      context.arc(x, y, this.#size(node) + 3, 0, 7);
      context.strokeStyle = this.#colours[colour];
      context.lineWidth = 2;
      context.stroke();
    }
  }

  /** Names of as many entities as there is room for: what stands out first, then the best connected. */
  #paintNames(context, within, bright, width, height) {
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 3;
    context.strokeStyle = this.#colours.ground;
    const rank = ([node]) => (node === this.selected ? 1e6 : 0) + (bright?.nodes.has(node) ? 1e4 : 0) + node.r;
    const candidates = within.sort((one, other) => rank(other) - rank(one)).slice(0, 400);
    const taken = new Set();
    const [wide, high] = [12, 9]; // of the cells that a name takes
    for (const [node, [x, y]] of candidates) {
      const stands = bright?.nodes.has(node);
      if (bright && !stands || x < 0 || y < 0 || x > width || y > height) continue;
      const r = this.#size(node);
      if (!stands && r < 3.2) continue;
      const name = Page.shortened(node.name, 27);
      if (!this.#widths.has(name)) this.#widths.set(name, context.measureText(name).width);
      const left = x + r + 4;
      const cells = [];
      for (let i = Math.floor((x - r) / wide); i <= Math.floor((left + this.#widths.get(name)) / wide); i += 1) {
        for (let j = Math.floor((y - 8) / high); j <= Math.floor((y + 8) / high); j += 1) cells.push(i * 4096 + j);
      }
      const must = node === this.selected || node === this.#hover || this.path && stands;
      if (!must && cells.some((cell) => taken.has(cell))) continue;
      for (const cell of cells) taken.add(cell);
      context.globalAlpha = 0.9;
      context.strokeText(name, left, y);
      context.globalAlpha = 1;
      context.fillStyle = stands || !bright ? this.#colours.ink : this.#colours["ink-faint"];
      context.fillText(name, left, y);
    }
  }

  #listen() {
    const canvas = this.#canvas;
    const here = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.x, event.clientY - box.y]; };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.#pointers.set(event.pointerId, here(event));
      const touch = event.pointerType === "touch" ? 14 : 4;
      if (this.#pointers.size === 1) this.#gesture = { node: this.under(...here(event), touch), start: here(event), moved: false };
      else this.#gesture = { pinch: true, moved: true };
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = here(event);
      const last = this.#pointers.get(event.pointerId);
      if (!last) { this.#look(this.under(x, y), event); return; }
      this.#pointers.set(event.pointerId, [x, y]);
      const gesture = this.#gesture;
      if (gesture.pinch) { this.#pinch(event.pointerId, last, [x, y]); return; }
      if (!gesture.moved && Math.hypot(x - gesture.start[0], y - gesture.start[1]) < 4) return;
      gesture.moved = true;
      canvas.classList.add("moving");
      this.#look(null, event);
      if (gesture.node) {
        gesture.node.x += (x - last[0]) / this.#view.zoom;
        gesture.node.y += (y - last[1]) / this.#view.zoom;
        this.draw();
      } else this.move(x - last[0], y - last[1]);
    });
    const end = (event) => {
      if (!this.#pointers.delete(event.pointerId) || this.#pointers.size) return;
      canvas.classList.remove("moving");
      if (event.type === "pointerup" && !this.#gesture.moved) this.#onPick(this.#gesture.node, event);
      this.#gesture = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", (event) => this.#look(null, event));
    canvas.addEventListener("dblclick", (event) => this.zoom(1.8, ...here(event)));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 18 : 1;
      this.zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY * lines)) * 0.0018), ...here(event));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      const factor = { "+": 1.3, "=": 1.3, "-": 1 / 1.3 }[event.key];
      if (step) this.move(...step);
      else if (factor) this.zoom(factor);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
    });
  }

  #pinch(id, last, now) {
    const other = [...this.#pointers].find(([each]) => each !== id)?.[1];
    if (!other) return;
    const [before, after] = [last, now].map(([x, y]) => Math.hypot(x - other[0], y - other[1]));
    this.zoom(after / Math.max(before, 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    this.move((now[0] - last[0]) / 2, (now[1] - last[1]) / 2);
  }

  #look(node, event) {
    this.#onHover(node, event);
    this.#canvas.classList.toggle("over", node !== null);
    if (node === this.#hover) return;
    this.#hover = node;
    this.draw();
  }
}
