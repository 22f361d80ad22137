// Two runs side by side: their steps in pairs, up to where they part and from there on.

const Comparison = (() => {
  /** Whether a run can be compared: its steps are known. */
  const fits = (run) => run.steps.length > 0;

  function textOf(run, step) {
    if (step.kind === "call") return run.entries.find((entry) => entry.seq === step.seq)?.payload.text ?? "";
    const before = run.entries.filter((entry) => entry.seq < step.seq);
    const from = before.findLastIndex(({ type }) => type === "model_start" || type === "model_retry");
    return before.slice(from + 1).map(({ type, payload }) => (type === "text_delta" ? payload.text : "")).join("");
  }

  /** The steps of a run with their texts and calls. */
  function stepsOf(run) {
    const made = run.entries.filter(({ type }) => type === "tool_calls_start").flatMap(({ payload }) => payload.calls);
    const calls = new Map(made.map((call) => [call.call_id, call]));
    const named = (id) => {
      const { tool = id, arguments: given = {} } = calls.get(id) ?? {};
      return { tool, given: JSON.stringify(given) };
    };
    return run.steps.map((step) => ({ ...step, text: textOf(run, step), calls: step.calls.map(named) }));
  }

  const whatOf = ({ kind, text, calls, status }) => JSON.stringify([kind, text, calls, kind === "call" ? status : ""]);

  /** A text, of which what another one does not have in its place is marked. */
  function marked(text, other) {
    if (!other || text === other) return span("", text);
    const [ours, theirs] = [[...text], [...other]];
    const most = Math.min(ours.length, theirs.length);
    let head = 0;
    while (head < most && ours[head] === theirs[head]) head += 1;
    let tail = 0;
    while (tail < most - head && ours.at(-1 - tail) === theirs.at(-1 - tail)) tail += 1;
    const end = ours.length - tail;
    const middle = end > head ? element("mark", { text: ours.slice(head, end).join("") }) : null;
    return element("span", {}, ours.slice(0, head).join(""), middle, ours.slice(end).join(""));
  }

  function used(step) {
    if (step.copied) return say("copied");
    if (step.given) return say("given");
    const tokens = step.kind === "answer" ? `${number(step.tokens)} ${say("tokens").toLowerCase()}` : "";
    return [tokens, duration(step.seconds), step.cost === null ? "" : cost(step.cost)].filter(Boolean).join(" · ");
  }

  /** A step, with marks where it differs from `other`, which stands opposite of it. */
  function cell(step, other, uses) {
    if (!step) return element("div", { class: "pair-cell none" });
    const kind = step.kind === "call" ? "tool" : "model";
    const title = step.kind === "call" ? span("mono", step.calls[0]?.tool ?? "") : span("", say("model"));
    const calls = step.kind === "call" ? [] : step.calls.map(({ tool, given }, place) => {
      const opposite = other?.calls[place];
      return element("p", { class: "mono small" }, "→ ", marked(`${tool} ${given}`, opposite && `${opposite.tool} ${opposite.given}`));
    });
    return element("div", { class: "pair-cell" },
      element("p", { class: "call-head small" },
        span("faint number", step.number), dot(kind), title,
        step.kind === "call" && step.status !== "success" ? chip(step.status) : null,
        span("faint", uses)),
      step.text ? element("p", { class: "words small" }, marked(step.text, other?.text)) : null,
      ...calls);
  }

  function pair(left, right) {
    if (left && right && whatOf(left) === whatOf(right)) {
      const uses = [...new Set([used(left), used(right)])].join("  |  ");
      return element("div", { class: "pair same" }, cell(left, undefined, uses));
    }
    const does = (step) => step && `${step.kind} ${step.kind === "call" ? step.calls[0]?.tool : ""}`;
    const alike = does(left) === does(right);
    const side = (step, other) => cell(step, alike ? other : undefined, step && used(step));
    return element("div", { class: "pair" }, side(left, right), side(right, left));
  }

  function totals(both) {
    const line = (key, of) => element("tr", {},
      element("th", { scope: "row", class: "faint", text: say(key) }),
      ...both.map((run) => element("td", { class: "number" }, of(run))));
    const link = (run) => element("a", { class: "mono", href: `#${run.id}`, text: run.id });
    return box("panel scrolls", element("table", { class: "list compared" },
      line("run", link),
      line("status", (run) => chip(run.status)),
      line("origin", (run) => (run.fork_of ? say("forked_here", { run: run.fork_of, step: run.fork_step }) : "—")),
      line("profile", (run) => run.profile),
      line("model", (run) => run.model),
      line("duration", (run) => duration(run.spent.seconds)),
      line("turns", (run) => number(run.spent.iterations)),
      line("calls", (run) => number(run.spent.tool_calls)),
      line("tokens", (run) => number(tokensOf(run))),
      line("cost", (run) => cost(run.spent.usage.cost))));
  }

  /** The body of the page for two runs. */
  function make(left, right) {
    const [ours, theirs] = [stepsOf(left), stepsOf(right)];
    const rows = Array.from({ length: Math.max(ours.length, theirs.length) }, (_, place) => pair(ours[place], theirs[place]));
    const parting = rows.findIndex((row) => !row.classList.contains("same"));
    if (parting >= 0) rows.splice(parting, 0, element("p", { class: "line rule soft small", text: say("part_here") }));
    else rows.push(element("p", { class: "line rule soft small", text: say("never_part") }));
    const steps = element("section", { class: "panel" }, panelHead("steps"), box("pairs", ...rows));
    return element("main", { class: "run" }, totals([left, right]), steps);
  }

  /** A choice of another run to compare a run with; the one that it is a fork of comes first. */
  function choice(run) {
    const others = Page.data.roots.map((id) => runs.get(id)).filter((each) => each !== run && fits(each));
    if (!fits(run) || !others.length) return null;
    others.sort((a, b) => Number(b.id === run.fork_of) - Number(a.id === run.fork_of));
    const label = (each) => `${Page.shortened(each.goal, 40)} · ${each.id}`;
    const options = others.map((each) => element("option", { value: each.id, text: label(each) }));
    const first = element("option", { value: "", text: say("compare_with") });
    const onchange = (event) => { location.hash = `#${run.id}~${event.target.value}`; };
    return element("select", { class: "compare", "aria-label": say("compare_with"), onchange }, first, ...options);
  }

  return { make, choice };
})();
