// The conversation of a run, in the order in which it was held.

const Conversation = (() => {
  const MOST = 400; // characters of a result, before it is opened

  /** The panel; `onSelect(span)` when something of it is chosen. */
  function make(run, { onSelect }) {
    const items = [];
    const spanOf = (kind, key) => run.spans.findLast((each) => each.kind === kind && each.key === key);
    const add = (seq, made) => { made.dataset.seq = seq; items.push(made); return made; };
    const words = (text, kind = "") => element("p", { class: `words ${kind}`, text });
    const article = (who, ...parts) => {
      return element("article", { class: `said ${who}` }, element("h3", { text: say(who) }), ...parts);
    };
    const said = (entry, who, text, ...more) => add(entry.seq, article(who, words(text), ...more));
    const line = (entry, text, kind = "") => add(entry.seq, element("p", { class: `line soft small ${kind}`, text }));
    const asked = new Set(run.entries.filter(({ type }) => type === "approval_required").map((each) => each.payload.pending.id));
    const announced = new Map(); // calls that people are asked about first: they stand where they were made
    let turn = null; // what the model is saying

    function turnOf(entry) {
      if (turn) return turn;
      turn = { element: add(entry.seq, article("model")), text: null };
      return turn;
    }

    /** Something that was done, to be chosen: a dot, texts and a chip, and what stands below. */
    function card(entry, found, { key, kind, head, given = "", result = "", waits = false }) {
      const took = found ? duration((found.end ?? run.end) - found.start) : "";
      const short = Page.shortened(result, MOST);
      add(entry.seq, element(
        "button",
        { class: waits ? "call waiting" : "call", "data-key": key, onclick: () => found && onSelect(found) },
        element("span", { class: "call-head" }, dot(kind), head, chip(found?.status ?? "open"), span("faint small", took)),
        given ? span("soft small given", given) : null,
        short ? span("small result", short) : null,
      ));
    }

    function textOf(given) {
      const texts = Object.values(given ?? {}).map((each) => (typeof each === "string" ? each : JSON.stringify(each)));
      return texts.map((each) => Page.shortened(each, MOST)).join(" · ");
    }

    function call({ call_id: id, tool, arguments: given }, entry) {
      const found = spanOf("tool", id) ?? spanOf("people", id);
      const result = found && Events.entriesOf(run, found).find((each) => each.type === "tool_result");
      card(entry, found, {
        key: `tool:${id}`,
        kind: found?.kind ?? "tool",
        head: span("mono", tool),
        given: textOf(given),
        result: result?.payload.text ?? "",
      });
    }

    /** A call that people have agreed to, and that begins, or has ended, now. */
    function made(entry, id) {
      const call_ = announced.get(id);
      if (!announced.delete(id)) return;
      call(call_, entry);
    }

    const READ = {
      request_start: (entry, it) => said(entry, "user", it.goal),
      flow_start: (entry, it) => {
        if (it.step_id) return;
        if (it.message) said(entry, "user", it.message);
        line(entry, say("flow_begins", { name: it.name || it.flow_id }));
      },
      message_received: (entry, it) => said(entry, "user", it.text),
      operator_message: (entry, it) => said(entry, "operator", [it.by, it.text].filter(Boolean).join(": ")),
      knowledge: (entry, it) => {
        const names = it.passages.slice(0, 5).map((each) => each.title || each.id);
        line(entry, [say("passages", { count: it.passages.length }), ...names].join(" · "));
      },
      model_start: () => { turn = null; },
      reasoning_delta: (entry, it) => {
        const title = element("summary", { class: "faint small", text: say("reasoning") });
        turnOf(entry).element.append(element("details", { class: "thought" }, title, words(it.text, "soft small")));
      },
      text_delta: (entry, it) => {
        turnOf(entry).element.append(words(it.text));
        turn.text = (turn.text ?? "") + it.text;
      },
      model_retry: (entry, it) => {
        if (turn) { items.splice(items.indexOf(turn.element), 1); turn = null; } // what was streamed does not count
        line(entry, say("retried", { problem: it.problem }), "warn");
      },
      tool_calls_start: (entry, it) => it.calls.forEach((each) => {
        if (asked.has(each.call_id)) announced.set(each.call_id, each);
        else call(each, entry);
      }),
      tool_start: (entry, it) => made(entry, it.call_id),
      tool_retry: (entry, it) => {
        const { tool, problem, attempt, attempts } = it;
        line(entry, say("call_retried", { tool, problem, attempt, attempts, wait: duration(it.wait) }), "warn");
      },
      tool_result: (entry, it) => made(entry, it.call_id),
      approval_required: (entry, { pending: it }) => {
        const found = spanOf("people", it.id);
        const text = [`${say(`pending_${it.kind}`)} ${it.tool}`, told(it.reason)].filter(Boolean).join(" · ");
        const waits = found?.end === null;
        const given = textOf(announced.get(it.id)?.arguments ?? it.arguments);
        card(entry, found, { key: `people:${it.id}`, kind: "people", head: span("", text), given, waits });
      },
      answer_reviewed: (entry, it) => {
        const parts = [say("reviewed_by", { hook: it.hook }), say(`status_${it.action}`), it.reason];
        line(entry, parts.filter(Boolean).join(" · "), "warn");
      },
      compression_applied: (entry, it) => {
        line(entry, say("shortened", { before: number(it.before), after: number(it.after) }), "rule");
      },
      paused: (entry, it) => line(entry, say("paused_by", { by: it.by || "—" }), "rule"),
      resumed: (entry, it) => { turn = null; line(entry, say("resumed_by", { by: it.by || "—" }), "rule"); },
      step_start: (entry, it) => {
        const found = run.spans.find((each) => each.kind === "step" && each.events.includes(entry.seq));
        card(entry, found, { key: `step:${it.step_id}`, kind: "step", head: span("mono", it.step_id), given: it.what });
      },
      forked: (entry, it) => {
        turn = null;
        line(entry, say("forked_here", { run: it.run_id, step: it.step }), "rule");
      },
      agent_finish: (entry, it) => finish(entry, it),
      flow_finish: (entry, it) => finish(entry, it),
      error: (entry, it) => said(entry, "failure", [it.message, it.advice].filter(Boolean).join("\n")),
      aborted: (entry, it) => {
        said(entry, "failure", [say("aborted_by", { by: it.by || "—" }), it.reason].filter(Boolean).join(": "));
      },
    };

    function finish(entry, it) {
      const data = (it.structured ?? null) === null ? null : pre(json(it.structured));
      if (turn?.text?.trim() === it.output?.trim() && turn) {
        turn.element.classList.add("final");
        turn.element.querySelector("h3").append(" ", span("chip good", say("final")));
        if (data) turn.element.append(data);
      } else if (it.output || data) said(entry, "final_answer", it.output, data).classList.add("final");
      turn = null;
    }

    for (const entry of run.entries) READ[entry.type]?.(entry, entry.payload);
    const list = element("div", { class: "words-list", tabindex: "0", "aria-label": say("conversation") }, ...items);
    if (!items.length) list.append(element("p", { class: "empty", text: say("nothing_said") }));
    const panel = element("section", { class: "panel conversation" }, panelHead("conversation"), list);

    /** Shows where a span belongs. */
    function mark(chosen) {
      for (const each of list.querySelectorAll(".marked")) each.classList.remove("marked");
      if (!chosen) return;
      const key = chosen.kind === "child" ? `tool:${runs.get(chosen.key).call}` : `${chosen.kind}:${chosen.key}`;
      const called = items.findLast((each) => each.dataset.key === key);
      const last = chosen.kind === "model" ? Math.max(...chosen.events) : chosen.events[0];
      const near = items.filter((each) => Number(each.dataset.seq) <= last);
      const within = near.findLast((each) => chosen.events.includes(Number(each.dataset.seq)));
      const named = called ?? within ?? near[near.length - 1];
      if (!named) return;
      named.classList.add("marked");
      const scroll = () => { list.scrollTop = named.offsetTop - list.offsetTop - 40; };
      scroll();
      requestAnimationFrame(scroll); // what comes into view is as high as it is only then
    }

    return { panel, mark };
  }

  return { make };
})();
