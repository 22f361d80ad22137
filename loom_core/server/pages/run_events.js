// The events of a run as a list to search in, and what is known of one span or event in full.

const Events = (() => {
  const AT_ONCE = 200; // rows that are made at a time
  const GROUPS = {
    model: ["model_start", "text_delta", "reasoning_delta", "model_retry", "usage", "input_reviewed", "answer_reviewed"],
    tool: ["tool_calls_start", "tool_start", "tool_task", "tool_progress", "tool_retry", "tool_result", "loop_detected"],
    step: ["route", "flow_start", "flow_changed", "inputs", "step_start", "step_result", "branch"],
    people: ["approval_required", "approval_decided", "message_received", "operator_message", "paused", "resumed"],
    knowledge: ["knowledge"],
    compaction: ["compression_warning", "compression_applied"],
    status: ["request_start", "forked", "agent_finish", "flow_finish", "error", "aborted"],
  };
  const groupOf = ({ type }) => Object.keys(GROUPS).find((group) => GROUPS[group].includes(type)) ?? "status";

  /** The entry that a seq is in: pieces of a text are one entry. */
  function entryOf(run, seq) {
    let low = 0;
    let high = run.entries.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (run.entries[middle].seq <= seq) low = middle;
      else high = middle - 1;
    }
    const found = run.entries[low];
    return found && seq >= found.seq && seq <= (found.last ?? found.seq) ? found : null;
  }

  const entriesOf = (run, of) => [...new Set(of.events.map((seq) => entryOf(run, seq)))].filter(Boolean);

  /** What an event says, in a line. */
  function summary({ type, payload: it, count }) {
    const texts = [it.text, it.goal, it.message, it.output, it.problem, it.reason];
    const first = texts.find((each) => typeof each === "string" && each);
    const turn = it.iteration && `#${it.iteration}`;
    const parts = [it.tool, it.pending?.tool, it.step_id, it.status, it.action, turn, first];
    if (type === "tool_calls_start") parts.unshift(it.calls.map((call) => call.tool).join(", "));
    if (type === "usage") parts.unshift(`${number(it.input_tokens)} → ${number(it.output_tokens)}`);
    const text = Page.shortened(parts.filter(Boolean).join(" · "), 300).replace(/\s+/g, " ");
    return count ? `×${count} ${text}` : text;
  }

  function row(entry) {
    const head = element("summary", {},
      span("seq number faint", entry.seq),
      span("at number soft", `+${duration(entry.at)}`),
      span(`type mono kind-${groupOf(entry)}`, entry.type),
      span("what", summary(entry)));
    const made = element("details", { class: "event" }, head);
    made.addEventListener("toggle", () => {
      if (made.open && made.children.length === 1) made.append(pre(json(entry.payload)));
    });
    return made;
  }

  function list(run) {
    const off = new Set();
    const rows = element("div", { class: "rows" });
    const count = element("span", { class: "faint small", role: "status" });
    const more = element("button", { onclick: () => append() });
    const texts = new Map(); // of entries, as they are searched
    let fits = () => true;
    let found = [];

    function textOf(entry) {
      if (!texts.has(entry)) {
        texts.set(entry, `${entry.seq} ${entry.type} ${JSON.stringify(entry.payload)}`.toLowerCase());
      }
      return texts.get(entry);
    }
    const there = Object.keys(GROUPS).filter((group) => run.entries.some((entry) => groupOf(entry) === group));
    const filters = there.map((group) => {
      const attributes = { class: `filter kind-${group}`, "aria-pressed": "true" };
      const made = element("button", attributes, dot(group), say(`kind_${group}`));
      made.addEventListener("click", () => {
        if (!off.delete(group)) off.add(group);
        made.setAttribute("aria-pressed", String(!off.has(group)));
        show();
      });
      return made;
    });

    function append() {
      rows.append(...found.slice(rows.childElementCount, rows.childElementCount + AT_ONCE).map(row));
      const left = found.length - rows.childElementCount;
      more.hidden = left <= 0;
      more.textContent = say("show_more", { count: number(Math.min(left, AT_ONCE)) });
    }
    function show() {
      found = run.entries.filter((entry) => !off.has(groupOf(entry)) && fits(textOf(entry)));
      const counted = { count: number(found.length), all: number(run.entries.length) };
      count.textContent = found.length ? say("events_shown", counted) : say("no_event");
      rows.replaceChildren();
      append();
    }
    const search = searchField("search_events", (wanted) => { fits = wanted; show(); });
    show();
    return element("section", { class: "panel events", "aria-label": say("events") },
      panelHead("events", count, span("grow", ""), search), box("chips", ...filters), rows, more);
  }

  const part = (key, ...content) => box("part", element("h3", { text: say(key) }), ...content);
  const isEmpty = (value) => value === "" || value === null || value === undefined;
  function facts(pairs) {
    const lines = pairs.filter(([, value]) => !isEmpty(value)).flatMap(([key, value]) => [
      element("dt", { text: say(key) }),
      element("dd", { class: "number", text: value }),
    ]);
    return element("dl", { class: "facts" }, ...lines);
  }
  const isCalls = ({ type }) => type === "tool_calls_start"; // which has the arguments
  const isFull = (value) => value && typeof value === "object" && Object.keys(value).length > 0;

  // What the page makes of a type of event; others are shown as they are.
  const PARTS = {
    text_delta: (it) => [part("text", pre(it.text))],
    reasoning_delta: (it) => [part("reasoning", pre(it.text))],
    model_retry: (it) => [part("retry", pre(it.problem))],
    usage: (it) => [part("usage", facts([
      ["tokens_in", number(it.input_tokens)],
      ["tokens_out", number(it.output_tokens)],
      ["tokens_reasoning", it.reasoning_tokens ? number(it.reasoning_tokens) : ""],
      ["tokens_cached", it.cache_read_tokens ? number(it.cache_read_tokens) : ""],
      ["cost", cost(it.cost)],
      ["note", it.estimated ? say("estimated") : ""],
    ]))],
    tool_calls_start: (it, of) => {
      const call = it.calls.find((each) => each.call_id === of.key);
      return call ? [part("arguments", pre(json(call.arguments)))] : [];
    },
    tool_start: (it) => (it.arguments ? [part("arguments_changed", pre(json(it.arguments)))] : []),
    tool_progress: (it) => {
      const share = it.total ? `${it.done} / ${it.total}` : it.done;
      return [part("progress", pre(`${it.message} ${share}`.trim()))];
    },
    tool_retry: (it) => [part("problem", pre(it.problem)), part("attempt", pre(`${it.attempt} / ${it.attempts}`))],
    tool_result: (it) => [
      part("result", pre(it.text || say("nothing"))),
      ...(it.warnings ? [part("warnings", pre(it.warnings.join("\n")))] : []),
      ...(it.blob ? [part("blob", pre(it.blob))] : []),
      part("stages", facts(Object.entries(it.stages ?? {}).map(([stage, seconds]) => [stage, duration(seconds)]))),
    ],
    approval_required: ({ pending: it }, of, entries) => [
      part("asked", pre(told(it.reason) || say(`pending_${it.kind}`))),
      ...(isFull(it.arguments) && !entries.some(isCalls) ? [part("arguments", pre(json(it.arguments)))] : []),
      ...(isFull(it.schema) ? [part("answer_schema", pre(json(it.schema)))] : []),
    ],
    approval_decided: (it) => {
      const scope = it.scope === "once" ? "" : it.scope;
      const said = facts([["outcome", statusText(it.action)], ["by", told(it.by)], ["reason", told(it.reason)], ["scope", scope]]);
      return [part("decision", said, ...(isFull(it.content) ? [pre(json(it.content))] : []))];
    },
    step_start: (it) => [...(it.what ? [part("does", pre(it.what))] : []), ...(it.attempt > 1 ? [part("attempt", pre(it.attempt))] : [])],
    step_result: (it) => [
      ...(it.problem ? [part("problem", pre(it.problem))] : []),
      ...(isFull(it.outputs) ? [part("outputs", pre(json(it.outputs)))] : []),
    ],
  };

  /** All that is known of a span. */
  function details({ run, span: of }) {
    const entries = entriesOf(run, of);
    const bare = new Set(["model_start", "paused"]);
    const asIs = (entry) => (bare.has(entry.type) ? [] : [part(entry.type, pre(json(entry.payload)))]);
    const time = { at: duration(of.start), time: duration((of.end ?? run.end) - of.start) };
    const title = element("h3", { text: of.title || say(`kind_${of.kind}`) });
    return box(
      "details-of",
      box("details-head", dot(of.kind), title, chip(of.status)),
      element("p", { class: "soft small number", text: say(of.end === null ? "began" : "took", time) }),
      of.kind === "child" ? part("goal", pre(runs.get(of.key).goal)) : null,
      ...entries.flatMap((entry) => PARTS[entry.type]?.(entry.payload, of, entries) ?? asIs(entry)),
      of.events.length && !entries.length ? element("p", { class: "note plain", text: say("left_out_here") }) : null,
    );
  }

  return { list, details, entriesOf };
})();
