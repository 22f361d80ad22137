// The timeline of a run: a lane for each kind, bars to scale, below them a row for each child run.

const Timeline = (() => {
  const LANES = ["model", "tool", "step", "people", "knowledge", "compaction", "child"];
  const ROW = 24; // pixels
  const MOST_ZOOM = 2000;
  const FOLDED = 0.05; // of the whole: how wide a folded wait is
  const BAD = new Set(["error", "timeout", "failure", "failed", "aborted", "denied", "deny", "unanswered", "cut"]);
  const STEPS = [ // seconds between two times on the axis
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
    60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800,
  ];
  const total = (waits) => waits.reduce((sum, [from, to]) => sum + (to - from), 0);
  const laneOf = (span) => (span.kind === "pause" ? "people" : span.kind);

  /** Where a time stands between 0 and 1; waits are folded to a short piece each. */
  function scaleOf(end, waits) {
    const busy = Math.max(end - total(waits), 0.001);
    const pieces = [...waits, [end, end]].reduce(
      (before, [from, to]) => {
        const last = before[before.length - 1];
        const start = last.place + (from - last.to); // what lies between is as long as it was
        const length = Math.min(to - from, busy * FOLDED);
        return [...before, { from, to, start, length, place: start + length }];
      },
      [{ from: 0, to: 0, start: 0, length: 0, place: 0 }],
    );
    const whole = Math.max(pieces[pieces.length - 1].place, 0.001);
    return (time) => {
      const piece = pieces.find((each) => time <= each.to) ?? pieces[pieces.length - 1];
      const inside = time > piece.from && piece.to > piece.from ? (time - piece.from) / (piece.to - piece.from) : 0;
      const place = time > piece.from ? piece.start + inside * piece.length : piece.start - (piece.from - time);
      return Math.min(Math.max(place / whole, 0), 1);
    };
  }

  /** Spans that overlap go into rows of their own. */
  function rowsOf(spans, end) {
    const ends = [];
    return spans.map((span) => {
      let row = ends.findIndex((until) => until <= span.start);
      if (row < 0) row = ends.length;
      ends[row] = span.end ?? end;
      return row;
    });
  }

  /** What is drawn: lanes of the run itself, then one for each run below it, with times as of this run. */
  function lanesOf(run, runs) {
    const items = (of, shift, wanted) => of.spans.filter(wanted).map((each) => ({
      run: of, span: each, start: each.start + shift, end: each.end === null ? null : each.end + shift,
    }));
    const lanes = LANES.map((kind) => {
      return { kind, name: say(`kind_${kind}`), items: items(run, 0, (each) => laneOf(each) === kind) };
    });
    const below = (parent, depth) => {
      for (const child of parent.children.map((id) => runs.get(id))) {
        const name = `${"\u2003".repeat(depth)}↳ ${child.profile}`;
        const shift = child.created - run.created;
        lanes.push({ kind: "", name, items: items(child, shift, (each) => each.kind !== "child") });
        below(child, depth + 1);
      }
    };
    below(run, 0);
    return lanes.filter((lane) => lane.items.length);
  }

  /** A time of the axis: 250 ms, 1.25 s, 0:15, 3:03:15. */
  function clock(time, step) {
    if (step < 1 && time < 1) return say("unit_ms", { ms: Math.round(time * 1000) });
    if (step < 1) return say("unit_s", { s: time.toFixed(step < 0.01 ? 3 : step < 0.1 ? 2 : 1) });
    const whole = Math.round(time);
    const parts = [Math.floor((whole % 3600) / 60), whole % 60];
    if (whole >= 3600) parts.unshift(Math.floor(whole / 3600));
    return parts.map((each, place) => String(each).padStart(place ? 2 : 1, "0")).join(":");
  }

  /** Times that are written between two places, in pixels of a picture that is so wide. */
  function ticksOf(end, waits, scale, pixels, left, right) {
    const busy = Math.max(end - total(waits), 0.001);
    const step = STEPS.find((each) => (each / busy) * pixels >= 76) ?? STEPS[STEPS.length - 1];
    const ticks = [];
    let last = -Infinity;
    for (let count = 0; count * step <= end; count += 1) {
      const wait = waits.find(([from, to]) => count * step > from && count * step < to);
      if (wait) {
        count = Math.max(Math.ceil(wait[1] / step) - 1, count); // on behind it
        continue;
      }
      const place = scale(count * step) * pixels;
      if (place - last < 60 || pixels - place < 40) continue;
      last = place;
      if (place > right) break;
      if (place >= left) ticks.push({ text: clock(count * step, step), place: place / pixels });
    }
    return ticks;
  }

  /** The panel; `onSelect({ run, span })` when a bar is chosen. */
  function make(run, runs, { onSelect }) {
    const end = Math.max(run.end, 0.001);
    const lanes = lanesOf(run, runs);
    const waits = run.waits;
    const waited = total(waits);
    let folds = waited > end / 3;
    let zoom = 1;
    let scale = scaleOf(end, []);
    let bars = [];
    const axis = element("div", { class: "axis" });
    const drawn = element("div", { class: "drawn" });
    const inner = element("div", { class: "inner" }, axis, drawn);
    const scroller = element("div", { class: "scroller", tabindex: "-1" }, inner);
    const names = element("div", { class: "names" });
    const hint = element("div", { class: "hint", role: "status", hidden: true });
    const fold = element("button", { onclick: () => { folds = !folds; draw(); }, hidden: waits.length === 0 });
    const button = (text, key, onclick) => {
      return element("button", { class: "quiet", text, "aria-label": say(key), title: say(key), onclick });
    };
    const panel = element(
      "section",
      { class: "panel timeline", "aria-label": say("timeline") },
      panelHead("timeline", span("faint small wide-only", say("timeline_keys")), span("grow", ""), fold,
        button("−", "zoom_out", () => zoomBy(1 / 1.6)),
        button("+", "zoom_in", () => zoomBy(1.6)),
        button("↔", "zoom_fit", () => zoomBy(0))),
      element("div", { class: "lanes" }, names, scroller),
      hint,
    );

    function bar(item, row) {
      const of = item.span;
      const from = scale(item.start);
      const share = scale(item.end ?? end) - from;
      const took = (item.end ?? end) - item.start;
      const kind = say(`kind_${of.kind}`);
      const title = of.title || kind;
      const marks = [BAD.has(of.status) && "bad", of.end === null && "open", took === 0 && "moment"].filter(Boolean);
      const made = element("button", {
        class: ["bar", `kind-${of.kind}`, ...marks].join(" "),
        style: { left: `${from * 100}%`, width: `${share * 100}%`, top: `${row * ROW + 3}px` },
        tabindex: "-1",
        "aria-label": `${kind} · ${title} · ${statusText(of.status)} · ${duration(took)}`,
      });
      return { item, element: made, share, title };
    }

    function draw() {
      const folded = folds ? waits : [];
      scale = scaleOf(end, folded);
      bars = [];
      names.replaceChildren(element("div", { class: "axis-name" }));
      drawn.replaceChildren();
      for (const lane of lanes) {
        const rows = rowsOf(lane.items.map((item) => ({ start: item.start, end: item.end })), end);
        const height = `${(Math.max(...rows) + 1) * ROW + 6}px`;
        names.append(element("div", { class: "lane-name", style: { height }, text: lane.name, title: lane.name }));
        const made = lane.items.map((item, place) => bar(item, rows[place]));
        const parts = made.map((each) => each.element);
        drawn.append(element("div", { class: `lane kind-${lane.kind}`, style: { height } }, ...parts));
        bars.push(...made);
      }
      for (const [from, to] of folded) {
        const style = { left: `${scale(from) * 100}%`, width: `${(scale(to) - scale(from)) * 100}%` };
        drawn.prepend(element("div", { class: "fold", style, title: say("folded", { time: duration(to - from) }) }));
      }
      bars.sort((one, other) => one.item.start - other.item.start);
      bars[0]?.element.setAttribute("tabindex", "0");
      fold.textContent = say(folds ? "unfold" : "fold", { time: duration(waited) });
      fold.setAttribute("aria-pressed", String(folds));
      mark(chosen);
      fit();
    }

    const width = () => Math.max(scroller.clientWidth * zoom, 200);

    function drawAxis() {
      const [from, seen] = [scroller.scrollLeft, scroller.clientWidth];
      const ticks = ticksOf(end, folds ? waits : [], scale, width(), from - seen, from + 2 * seen);
      axis.replaceChildren(...ticks.map(({ text, place }) => {
        return element("span", { class: "tick number", style: { left: `${place * 100}%` }, text });
      }));
    }

    function fit() {
      const share = 38 / width(); // no name where there is no place for one
      for (const each of bars) each.element.textContent = each.share > share ? each.title : "";
      drawAxis();
    }

    function zoomBy(factor, at = scroller.clientWidth / 2) {
      const before = (scroller.scrollLeft + at) / (scroller.clientWidth * zoom || 1);
      zoom = Math.min(Math.max(zoom * factor, 1), MOST_ZOOM);
      inner.style.width = `${zoom * 100}%`;
      scroller.scrollLeft = before * scroller.clientWidth * zoom - at;
      fit();
    }

    let chosen = null;
    function mark(of) {
      chosen = of;
      for (const each of bars) {
        const is = of !== null && each.item.span === of;
        each.element.classList.toggle("chosen", is);
        if (is) each.element.setAttribute("aria-current", "true");
        else each.element.removeAttribute("aria-current");
      }
    }

    const foundBar = (target) => bars.find((each) => each.element === target.closest?.(".bar"));
    scroller.addEventListener("click", (event) => {
      const found = foundBar(event.target);
      if (found) onSelect(found.item);
    });
    for (const kind of ["pointerover", "focusin"]) {
      scroller.addEventListener(kind, (event) => {
        const found = foundBar(event.target);
        hint.hidden = !found;
        if (!found) return;
        hint.textContent = `${found.element.getAttribute("aria-label")} · +${duration(found.item.start)}`;
      });
    }
    scroller.addEventListener("pointerleave", () => { hint.hidden = true; });
    scroller.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY / 300), event.clientX - scroller.getBoundingClientRect().left);
    }, { passive: false });
    panel.addEventListener("keydown", (event) => {
      const zooms = { "+": 1.6, "=": 1.6, "-": 1 / 1.6, 0: 0 };
      const place = bars.findIndex((each) => each.element === document.activeElement);
      const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -place, End: bars.length - 1 - place };
      if (event.key in zooms && !event.ctrlKey && !event.metaKey) zoomBy(zooms[event.key]);
      else if (event.key in moves && place >= 0) {
        const next = bars[Math.min(Math.max(place + moves[event.key], 0), bars.length - 1)];
        for (const each of bars) each.element.setAttribute("tabindex", each === next ? "0" : "-1");
        next.element.focus({ preventScroll: true });
        next.element.scrollIntoView({ block: "nearest", inline: "nearest" });
      } else return;
      event.preventDefault();
    });
    scroller.addEventListener("scroll", drawAxis, { passive: true });
    new ResizeObserver(fit).observe(scroller);
    draw();
    return { panel, mark };
  }

  return { make };
})();
