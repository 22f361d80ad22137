// Small parts that all scripts of the page of runs use: elements, numbers, times and statuses for people.

const { element, say } = Page;

const span = (kind, text) => element("span", { class: kind, text });
const box = (kind, ...children) => element("div", { class: kind }, ...children);
const dot = (kind) => span(`dot kind-${kind}`, "");
const pre = (text) => element("pre", { text });
const json = (value) => JSON.stringify(value, null, 2);
const panelHead = (key, ...more) => box("bar-head", element("h2", { text: say(key) }), ...more);

/** The head of the page: what it is, and the switches. */
function pageHead(...parts) {
  const made = (name) => element("button", { class: "quiet", "data-switch": name });
  return element("header", { class: "head" }, ...parts, box("switches", made("language"), made("theme")));
}

/** A field to search in: `act(fits)` is told whether a text has all the words. */
function searchField(key, act) {
  const field = element("input", { type: "search", id: key, placeholder: say(key), "aria-label": say(key) });
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    act((text) => words.every((word) => text.includes(word)));
  });
  return field;
}

function number(value) {
  return Number(value).toLocaleString(Page.language);
}

/** A length of time, in seconds, for people. */
function duration(seconds) {
  const round = (value, digits) => Number(value.toFixed(digits)).toLocaleString(Page.language);
  if (seconds <= 0) return say("unit_s", { s: 0 });
  const digits = seconds < 0.0001 ? 3 : seconds < 0.01 ? 1 : 0;
  if (seconds < 0.9995) return say("unit_ms", { ms: round(seconds * 1000, digits) });
  if (seconds < 59.95) return say("unit_s", { s: round(seconds, seconds < 9.995 ? 2 : 1) });
  const whole = Math.round(seconds);
  if (whole < 3600) return say("unit_min", { m: Math.floor(whole / 60), s: whole % 60 });
  if (whole < 86400) return say("unit_h", { h: Math.floor(whole / 3600), m: Math.floor((whole % 3600) / 60) });
  return say("unit_d", { d: Math.floor(whole / 86400), h: Math.floor((whole % 86400) / 3600) });
}

function cost(dollars) {
  if (dollars === null || dollars === undefined) return "—";
  const digits = { minimumFractionDigits: 2, maximumFractionDigits: dollars < 0.01 ? 6 : 4 };
  return `$${dollars.toLocaleString(Page.language, digits)}`;
}

function when(seconds) {
  return new Date(seconds * 1000).toLocaleString(Page.language, { dateStyle: "medium", timeStyle: "medium" });
}

function statusText(status) {
  const key = `status_${status}`;
  const text = say(key);
  return text === key ? status : text;
}

/** What Loom itself has given as a reason, in the reader's language; what others have written stays as it is. */
function told(text) {
  const known = Page.data.sentences.find((pair) => pair.includes(text));
  if (known) return known[Page.language === "zh" ? 1 : 0];
  const rule = Page.data.rule.find((before) => text?.startsWith(before));
  return rule ? Page.data.rule[Page.language === "zh" ? 1 : 0] + text.slice(rule.length) : text;
}

const COLOURS = {
  good: ["completed", "ok", "approve", "accept"],
  warn: ["input_required", "open", "paused", "unanswered", "cut", "warning", "unknown", "decline", "declined"],
  bad: ["failed", "aborted", "error", "timeout", "denied", "deny", "failure"],
  accent: ["working"],
};

function chip(status) {
  const colour = Object.keys(COLOURS).find((each) => COLOURS[each].includes(status)) ?? "";
  return span(`chip ${colour}`, statusText(status));
}
