// What the scripts of all pages share: the page's data, elements, words in two languages, light and dark.
//
// Texts of runs and documents are data: they become text nodes, never HTML.

"use strict";

const Page = (() => {
  const root = document.documentElement;
  const words = { en: {}, zh: {} };
  const listeners = [];
  const data = JSON.parse(document.getElementById("data").textContent);

  // What a reader chose outlives a reload where the browser keeps it; a sandboxed frame does not.
  const kept = {
    get(name) {
      try { return localStorage.getItem(`loom-${name}`); } catch { return null; }
    },
    set(name, value) {
      try { localStorage.setItem(`loom-${name}`, value); } catch { /* it holds until the page is closed */ }
    },
  };

  /** An element: `element("button", { class: "quiet", text: "Close", onclick: close }, ...children)`. */
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "text") made.textContent = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (key === "style") for (const [property, text] of Object.entries(value)) made.style.setProperty(property, text);
      else made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return made;
  }

  /** Adds words: `{ en: { close: "Close", cut: "{count} left out" }, zh: { … } }`. */
  function speak(more) {
    for (const language of Object.keys(words)) Object.assign(words[language], more[language]);
    label(document);
  }

  /** What a key says in the reader's language, with `{name}`s filled in. */
  function say(key, values = {}) {
    const text = words[root.lang][key] ?? words.en[key] ?? key;
    return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  }

  /** Elements that carry data-say, data-say-label, data-say-hint or data-say-title are labelled by their keys. */
  function label(within) {
    for (const each of within.querySelectorAll("[data-say]")) each.textContent = say(each.dataset.say);
    for (const each of within.querySelectorAll("[data-say-label]")) each.setAttribute("aria-label", say(each.dataset.sayLabel));
    for (const each of within.querySelectorAll("[data-say-hint]")) each.setAttribute("placeholder", say(each.dataset.sayHint));
    for (const each of within.querySelectorAll("[data-say-title]")) each.setAttribute("title", say(each.dataset.sayTitle));
  }

  /** The beginning of a text; no character is cut in half that JavaScript counts as two, such as 𝒰. */
  function beginning(text, most) {
    const half = /[\uD800-\uDBFF]/.test(text[most - 1] ?? "") && /[\uDC00-\uDFFF]/.test(text[most] ?? "");
    return text.slice(0, half ? most - 1 : most);
  }

  /** The same with "…" behind it where something is left out. */
  const shortened = (text, most) => (text.length > most ? `${beginning(text, most)}…` : text);

  /** What a colour of base.css is now, for a canvas: `colour("--kind-1")`. */
  function colour(name) {
    const probe = document.body.appendChild(element("span", { style: { color: `var(${name})` } }));
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme ?? (systemDark.matches ? "dark" : "light");

  /** Labels what has been made since: call it when the page has put up switches or data-say elements. */
  function refresh() {
    label(document);
    for (const button of document.querySelectorAll("[data-switch=language]")) {
      button.textContent = root.lang === "zh" ? "English" : "中文";
      button.lang = root.lang === "zh" ? "en" : "zh";
    }
    for (const button of document.querySelectorAll("[data-switch=theme]")) {
      button.textContent = say(theme() === "dark" ? "theme_light" : "theme_dark");
    }
  }

  function changed() {
    refresh();
    for (const listener of listeners) listener();
  }

  function setTheme(name, { keep = false } = {}) {
    root.dataset.theme = name;
    if (keep) kept.set("theme", name);
    changed();
  }

  function setLanguage(name, { keep = false } = {}) {
    root.lang = name.toLowerCase().startsWith("zh") ? "zh" : "en";
    if (keep) kept.set("language", root.lang);
    changed();
  }

  /** Calls back when theme or language has changed: time to draw again. */
  const onChange = (listener) => listeners.push(listener);

  words.en = { theme_dark: "Dark", theme_light: "Light" };
  words.zh = { theme_dark: "深色", theme_light: "浅色" };
  const chosen = kept.get("theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  root.lang = (kept.get("language") ?? navigator.language).toLowerCase().startsWith("zh") ? "zh" : "en";
  systemDark.addEventListener("change", changed);
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-switch]") : null;
    if (button?.dataset.switch === "theme") setTheme(theme() === "dark" ? "light" : "dark", { keep: true });
    if (button?.dataset.switch === "language") setLanguage(root.lang === "zh" ? "en" : "zh", { keep: true });
  });
  refresh();

  return { data, element, speak, say, refresh, beginning, shortened, colour, theme, setTheme, setLanguage, onChange, get language() { return root.lang; } };
})();
