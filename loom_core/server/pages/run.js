// The page of runs: a list of them, and one run with its totals, timeline, conversation and events.

const runs = new Map(Page.data.runs.map((run) => [run.id, run]));

const tokensOf = (run) => run.spent.usage.input_tokens + run.spent.usage.output_tokens;

const View = (() => {
  const KINDS = ["model", "tool", "child", "step", "people", "pause", "compaction", "other"];
  const place = document.getElementById("page");
  let selected = null;
  let shown = null; // the run that is open, with its panels

  /** What a span is called in the page's address: its last event is of no other one. */
  const nameOf = (span) => String(span.events.at(-1) ?? span.key);

  function fact(key, value, title) {
    if (value === "" || value === null) return null;
    const [name, what] = [element("dt", { text: say(key) }), element("dd", { class: "number", text: value })];
    return element("div", { class: "fact", title }, name, what);
  }

  const note = (text, kind = "") => (text ? element("p", { class: `note ${kind}`, text }) : null);

  function timeByKind(run) {
    const all = Object.values(run.seconds).reduce((sum, each) => sum + each, 0) || 1;
    const there = KINDS.filter((kind) => run.seconds[kind] / all >= 0.0005);
    if (!there.length) return null;
    const percent = { style: "percent", maximumFractionDigits: 1 };
    const share = (kind) => (run.seconds[kind] / all).toLocaleString(Page.language, percent);
    const bars = there.map((kind) => {
      const style = { width: `${(run.seconds[kind] / all) * 100}%` };
      return element("span", { class: `kind-${kind}`, style });
    });
    const lines = there.map((kind) => {
      const time = span("soft number", `${duration(run.seconds[kind])} · ${share(kind)}`);
      return element("li", {}, dot(kind), span("", say(`kind_${kind}`)), time);
    });
    return box(
      "shares",
      element("div", { class: "share-bar", role: "img", "aria-label": say("time_by_kind") }, ...bars),
      element("ul", { class: "legend small" }, ...lines),
    );
  }

  /** Of which run it is a fork, with a link where that run is on the page. */
  function originOf(run) {
    if (!run.fork_of) return null;
    const text = say("forked_here", { run: run.fork_of, step: run.fork_step });
    return element("p", { class: "small" }, runs.has(run.fork_of) ? element("a", { href: `#${run.fork_of}`, text }) : text);
  }

  function totals(run) {
    const { usage, iterations, tool_calls: calls } = run.spent;
    const asked = run.spans.filter((span) => span.kind === "people");
    const kinds = new Map(run.entries.filter((each) => each.type === "approval_required")
      .map(({ payload: { pending } }) => [pending.id, pending.kind]));
    const isQuestion = (span) => kinds.get(span.key) === "question" || span.status === "accept";
    const questions = asked.filter(isQuestion);
    const approvals = asked.filter((span) => !isQuestion(span));
    const counted = (key, said, spans, agreed) => {
      const yes = spans.filter((span) => agreed.includes(span.status)).length;
      return spans.length ? fact(key, say(said, { yes, all: spans.length })) : null;
    };
    const waited = (run.seconds.people ?? 0) + (run.seconds.pause ?? 0);
    const about = usage.estimated ? " ≈" : "";
    const tokens = `${number(usage.input_tokens)} → ${number(usage.output_tokens)}${about}`;
    const of = (spent, most) => (most === undefined ? number(spent) : `${number(spent)} / ${number(most)}`);
    return element(
      "section",
      { class: "panel totals", "aria-label": say("totals") },
      element("p", { class: "goal", text: run.goal }),
      originOf(run),
      element("dl", { class: "facts-row" },
        fact("duration", duration(run.end - run.began)),
        waited ? fact("worked", duration(Math.max(run.end - run.began - waited, 0)), say("worked_title")) : null,
        iterations ? fact("turns", of(iterations, run.budget.iterations)) : null,
        fact("calls", of(calls, run.budget.tool_calls)),
        tokensOf(run) ? fact("tokens", tokens, say("tokens_title")) : null,
        tokensOf(run) ? fact("cost", cost(usage.cost), usage.cost === null ? say("cost_unknown") : "") : null,
        counted("approvals", "approvals_of", approvals, ["approve", "edit"]),
        counted("questions", "questions_of", questions, ["accept"])),
      timeByKind(run),
      element("dl", { class: "facts-row minor small" },
        fact("started", when(run.created + run.began)),
        ...["profile", "model", "session", "client", "caller", "driver"].map((key) => fact(key, run[key]))),
    );
  }

  /** What a reader has to know: that it is not at its end, why it failed, what is not here. */
  function notesOf(run) {
    const at = when(Page.data.now);
    return [
      run.status === "working" ? note(say(run.driver ? "goes_on" : "left_alone", { at })) : null,
      run.status === "input_required" ? note(say("waits", { at })) : null,
      run.status === "paused" ? note(say("is_paused")) : null,
      note(run.problem, "bad"),
      ...["left_out", "texts_cut", "children_left_out"].map((key) => {
        const values = { count: number(run[key]), all: number(run.events) };
        return run[key] ? note(say(key, values), "plain") : null;
      }),
    ];
  }

  function showRun(run, seq) {
    const parent = runs.get(run.parent);
    const up = parent ? `#${parent.id}` : runs.size > 1 && Page.data.roots.length > 1 ? "#" : "";
    const details = element("section", { class: "panel details", "aria-live": "polite" });
    const select = (item) => { location.replace(`#${run.id}:${nameOf(item.span)}`); choose(item); };
    function selectStep(ids) { // of several items, one that has failed
      const spans = run.spans.filter((each) => each.kind === "step" && ids.includes(each.key));
      const found = spans.findLast((each) => each.status !== "ok") ?? spans[spans.length - 1];
      if (found) select({ run, span: found });
    }
    const timeline = Timeline.make(run, runs, { onSelect: (item) => (item.run === run ? select(item) : choose(item)) });
    const conversation = Conversation.make(run, { onSelect: (span) => select({ run, span }) });
    const flow = Page.data.flows[run.id] ? Diagram.make(Page.data.flows[run.id], { onSelect: selectStep }) : null;
    shown = { run, details, timeline, conversation, flow };
    place.replaceChildren(
      pageHead(
        up ? element("a", { href: up, text: `← ${parent ? parent.id : say("all_runs")}` }) : null,
        element("h1", { class: "mono", text: run.id }),
        chip(run.status),
        Comparison.choice(run),
      ),
      element("main", { class: "run" },
        ...notesOf(run),
        totals(run),
        run.entries.length ? timeline.panel : null,
        element("div", { class: flow ? "columns with-flow" : "columns" },
          flow?.panel, conversation.panel, details, Events.list(run))),
    );
    const first = run.spans.find((span) => span.end === null && span.kind === "people") ?? null;
    const named = seq === undefined ? first : run.spans.find((span) => nameOf(span) === seq);
    choose(named ? { run, span: named } : null);
  }

  function choose(item) {
    selected = item;
    shown.timeline.mark(item?.span ?? null);
    shown.flow?.mark(item?.run === shown.run ? item.span : null);
    shown.conversation.mark(item?.run === shown.run ? item.span : null);
    const open = (id) => element("button", {
      class: "primary",
      text: say("open_run"),
      onclick: () => { location.hash = `#${id}`; },
    });
    const other = item && (item.span.kind === "child" ? item.span.key : item.run !== shown.run ? item.run.id : "");
    shown.details.replaceChildren(
      panelHead("details"),
      item ? Events.details(item) : element("p", { class: "empty small", text: say("choose") }),
      other ? open(other) : "",
    );
  }

  function showBoth(left, right) {
    shown = null;
    const up = element("a", { href: "#", text: `← ${say("all_runs")}` });
    place.replaceChildren(pageHead(up, element("h1", { text: say("compared") })), Comparison.make(left, right));
  }

  function showList() {
    shown = null;
    const body = element("tbody");
    const empty = element("p", { class: "empty", text: say(Page.data.roots.length ? "no_run" : "no_runs") });
    const columns = ["status", "goal", "started", "duration", "calls", "tokens", "cost"];
    const cell = (text) => element("td", { class: "number right", text });
    const line = (run) => {
      const children = run.children.length ? say("child_runs", { count: run.children.length }) : "";
      const forked = run.fork_of && say("forked_here", { run: run.fork_of, step: run.fork_step });
      const goal = element("a", { href: `#${run.id}`, text: Page.shortened(run.goal, 300) || run.id });
      const under = span("faint small", [run.profile, children, forked].filter(Boolean).join(" · "));
      return element("tr", {},
        element("td", {}, chip(run.status)),
        element("td", { class: "goal-cell" }, goal, under),
        element("td", { class: "number", text: when(run.created + run.began) }),
        cell(duration(run.end - run.began)),
        cell(number(run.spent.tool_calls)),
        cell(number(tokensOf(run))),
        cell(tokensOf(run) ? cost(run.spent.usage.cost) : "—"));
    };
    const textOf = (run) => [run.id, run.goal, run.profile, run.status, statusText(run.status)].join(" ").toLowerCase();
    function fill(fits) {
      const found = Page.data.roots.map((id) => runs.get(id)).filter((run) => fits(textOf(run)));
      body.replaceChildren(...found.map(line));
      empty.hidden = found.length > 0;
    }
    const names = columns.map((key, place) => {
      return element("th", { scope: "col", class: place > 2 ? "right" : "", text: say(key) });
    });
    const table = element("table", { class: "list" }, element("thead", {}, element("tr", {}, ...names)), body);
    const more = Page.data.more ? note(say("more_runs", { count: number(Page.data.roots.length) }), "plain") : null;
    place.replaceChildren(
      pageHead(element("h1", { text: say("runs_of", { program: Page.data.program }) }), searchField("search_runs", fill)),
      element("main", { class: "run" }, more, box("panel scrolls", table, empty)),
    );
    fill(() => true);
  }

  function show() {
    const [id, seq] = decodeURIComponent(location.hash.slice(1)).split(":");
    const both = id.split("~").map((each) => runs.get(each));
    const run = runs.get(id) ?? (Page.data.roots.length === 1 ? runs.get(Page.data.roots[0]) : null);
    if (both.length === 2 && both.every(Boolean)) showBoth(...both);
    else if (run) showRun(run, seq);
    else showList();
    document.title = run ? `${Page.shortened(run.goal, 60)} · ${run.id}` : say("runs_of", { program: Page.data.program });
    Page.refresh();
  }

  return { show, isOpen: (id) => shown?.run.id === id };
})();

addEventListener("hashchange", () => {
  const [id, chosen] = location.hash.slice(1).split(":");
  if (chosen !== undefined && View.isOpen(id)) return; // it was chosen here
  View.show();
  scrollTo(0, 0);
});
Page.speak(Page.data.words);
Page.onChange(() => View.show());
View.show();
