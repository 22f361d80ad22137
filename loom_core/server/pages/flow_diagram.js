// The diagram of a flow: lines in SVG, cards of steps as a list over them, and the path of a run. What is where
// comes from loom_core.flow.diagram.layout.

const Diagram = (() => {
  const ROUND = 6; // radius of a line's corners, in pixels
  const ARROW = 5;
  const LEAST_ZOOM = 0.75;
  const MARKS = { done: "✓", failed: "✕", declined: "✕", stopped: "■", recovered: "✕", waiting: "●", open: "▸" };

  function svg(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  /** A line through points with round corners, and the head of its arrow, if it has one. */
  function pathsOf({ points, arrow }) {
    const toward = ([x, y], [to, down], most) => {
      const length = Math.hypot(to - x, down - y);
      const part = Math.min(most, length / 2) / (length || 1);
      return [x + (to - x) * part, y + (down - y) * part];
    };
    const [x, y] = points[points.length - 1];
    const bends = points.slice(1, -1).map((corner, place) => {
      const [from, to] = [toward(corner, points[place], ROUND), toward(corner, points[place + 2], ROUND)];
      return `L${from}Q${corner} ${to}`;
    });
    const whole = svg("path", { class: "shaft", d: `M${points[0]}${bends.join("")}L${x},${y}` });
    if (!arrow) return [whole];
    const [fromX, fromY] = points[points.length - 2];
    const [right, down] = [Math.sign(x - fromX), Math.sign(y - fromY)];
    const sides = [1, -1].map((side) => [x - ARROW * (right + side * down), y - ARROW * (down + side * right)]);
    return [whole, svg("path", { d: `M${sides[0]}L${x},${y}L${sides[1]}` })];
  }

  function placed(made, { x, y, width, height }) {
    const style = { left: x, top: y, width, height };
    for (const [property, value] of Object.entries(style)) made.style.setProperty(property, `${value}px`);
    return made;
  }

  /** What a list of steps is for: `if $inputs.days > 3`. */
  function labelOf({ role, condition }) {
    if (role === "flow") return say("start_of_flow");
    if (role === "item") return say("for_each_of", { list: condition });
    return condition ? say("if_condition", { condition }) : say("otherwise");
  }

  /** A transition of a list's step in words: `→ slots`, `↻ ×2`. */
  function wayOf({ type, to, limit }, role) {
    if (type === "retry") return `↻ ×${limit} ${to}`.trim();
    if (type === "goto") return `→ ${to}`;
    return `→ ${say(type === "end" ? `end_of_${role}` : "end_of_flow")}`;
  }

  function rowTitle(row, role) {
    const after = row.type === "no" ? "after_no" : row.after_failure ? "after_failure" : "after_success";
    return [say(after), wayOf(row, role), row.condition].filter(Boolean).join(" ");
  }

  /** Elements of the diagram; `onSelect(ids)` with the ids of a step's runs when a card is chosen. */
  function draw(flow, { onSelect }) {
    const trace = flow.trace ?? null;
    const taken = new Set(trace?.lines);
    const cards = new Map();
    const frames = [];
    const marks = (...names) => names.filter(Boolean).join(" ");
    const isTaken = (key) => trace !== null && taken.has(key);

    function badge(done) {
      if (done?.items) {
        return say(done.failed_items ? "items_failed" : "items_done", { count: done.items, failed: done.failed_items });
      }
      return done?.starts > 1 ? `×${done.starts}` : "";
    }

    function card(of, role) {
      const done = trace?.steps[of.path];
      const kind = say(`step_${of.kind}`);
      const status = done ? say(`step_is_${done.status}`) : trace ? say("step_is_unreached") : "";
      const title = [of.step, kind, status, badge(done), of.description, of.text, ...of.rows.map((row) => rowTitle(row, role))];
      const whole = title.filter(Boolean);
      const parts = [
        box("card-head", span("mark", MARKS[done?.status] ?? ""), span("mono name", of.step), span("badge", badge(done)),
          span("faint card-kind", kind)),
        of.description || of.text ? box("soft card-text", of.description || of.text) : null,
        ...of.rows.map((row) => box(marks("card-row", row.after_failure && "failure", isTaken(row.key) && "taken"),
          span("way", wayOf(row, role)), span("mono faint", row.type === "no" ? say("after_no") : row.condition))),
      ];
      const made = element(done ? "button" : "div", {
        class: marks("step-card", done ? `is-${done.status}` : trace && "is-unreached", of.frame && "has-lists"),
        title: whole.join("\n"),
        "aria-label": done ? whole.join(", ") : null,
        onclick: done ? () => onSelect(Object.keys(done.latest)) : null,
      }, ...parts);
      if (done) cards.set(made, done);
      if (of.frame) frames.push(placed(element("div", { class: marks("step-frame", trace && !done && "is-unreached") }), of.frame));
      return element("li", {}, placed(made, of.box), ...of.columns.map(list));
    }

    function list(column) {
      const text = labelOf(column);
      const isReached = column.role === "flow" ? trace?.steps && taken.has(":start") : taken.has(column.start);
      const waits = column.role === "flow" && trace?.waits;
      const label = column.label && placed(element("div", {
        class: marks("list-label", `of-${column.role}`, waits ? "is-waiting" : trace && !isReached && "is-unreached"),
        title: text,
      }, span("", text)), column.label);
      return element("div", { role: "group", "aria-label": column.label ? text : say("step_parallel") }, label ?? "",
        element("ol", {}, ...column.cards.map((each) => card(each, column.role))));
    }

    const steps = list(flow.column);
    const end = placed(element("div", {
      class: marks("list-label of-end", trace?.reached_end ? "is-reached" : trace && "is-unreached"),
    }, say("end_of_flow")), flow.end);
    const lines = [...flow.lines].sort((one, other) => isTaken(one.key) - isTaken(other.key)).map((line) => svg("g", {
      class: marks(line.after_failure && "failure", isTaken(line.key) && "taken", trace && !isTaken(line.key) && "is-unreached"),
    }, ...pathsOf(line)));
    const drawn = svg("svg", { width: flow.width, height: flow.height, "aria-hidden": "true" }, ...lines);
    const canvas = element("div", { class: "flow-canvas" }, ...frames, drawn, steps, end);
    canvas.style.setProperty("width", `${flow.width}px`);
    canvas.style.setProperty("height", `${flow.height}px`);
    return { canvas, cards };
  }

  /** The panel; `onSelect(ids)` when a step is chosen that has run. */
  function make(flow, { onSelect = () => {} } = {}) {
    const heading = panelHead("flow", span("small", flow.title ?? ""), span("faint small mono", flow.id ?? ""));
    const panel = element("section", { class: "panel flow", "aria-label": `${say("flow")} ${flow.title ?? ""}` }, heading);
    const note = (text) => panel.append(element("p", { class: "note plain", text }));
    if (flow.is_missing) {
      note(say("flow_is_missing"));
      return { panel, mark: () => {} };
    }
    if (flow.has_changed) note(say("flow_has_changed"));
    if (flow.trace?.unknown.length) note(say("flow_lacks_steps", { steps: flow.trace.unknown.join(", ") }));
    const { canvas, cards } = draw(flow, { onSelect });
    const scroller = element("div", { class: "flow-scroller", tabindex: "0", "aria-label": say("flow") }, canvas);
    panel.append(scroller);
    new ResizeObserver(() => {
      const zoom = Math.min(Math.max(scroller.clientWidth / flow.width, LEAST_ZOOM), 1);
      canvas.style.setProperty("zoom", String(zoom));
    }).observe(scroller);

    /** Brings the step into view at which the run is; the start, if it is at none. */
    function showLatest() {
      const at = ["waiting", "failed", "declined", "open"].map((status) => canvas.querySelector(`:not(.has-lists).is-${status}`));
      const found = (at.find(Boolean) ?? canvas.querySelector(".of-flow")).getBoundingClientRect();
      const seen = scroller.getBoundingClientRect();
      scroller.scrollBy(found.x + found.width / 2 - seen.x - seen.width / 2, found.y - seen.y - seen.height / 2);
    }
    requestAnimationFrame(() => requestAnimationFrame(showLatest)); // when it has its zoom

    function mark(of) {
      for (const [made, done] of cards) made.classList.toggle("chosen", of?.kind === "step" && of.key in done.latest);
    }
    return { panel, mark };
  }

  return { make };
})();
