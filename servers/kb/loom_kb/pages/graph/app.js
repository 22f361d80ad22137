// The same page inside the conversation of a host: an MCP App (io.modelcontextprotocol/ui, 2026-01-26).
//
// The host shows it beside a result of the tool `graph`, speaks JSON-RPC with it over postMessage, and lets it call
// the server's tools, if it likes. What comes from the host is data as everything else.

"use strict";

const App = (() => {
  const PATIENCE = 60_000; // milliseconds that a call may take
  const HEIGHT = 560; // where the host leaves it to the page
  // Colours and type of a host, and what they stand for here.
  const DRESS = {
    "--color-background-primary": ["--panel", "--ground"], "--color-background-secondary": ["--sunken"],
    "--color-text-primary": ["--ink"], "--color-text-secondary": ["--ink-soft"], "--color-border-primary": ["--line"],
    "--font-sans": ["--font"],
  };
  const waiting = new Map();
  let last = 0;
  let context = {};
  let source = {}; // the knowledge base that the tool was asked for, as an argument

  const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");

  function ask(method, params) {
    const id = ++last;
    return new Promise((resolve, reject) => {
      const end = setTimeout(() => { waiting.delete(id); reject(new Error(`${method}: no answer`)); }, PATIENCE);
      waiting.set(id, { resolve, reject, end });
      send({ id, method, params });
    });
  }

  async function call(name, given) {
    const result = await ask("tools/call", { name, arguments: { ...given, ...source } });
    if (result.isError || !result.structuredContent) throw new Error(words(result));
    return result.structuredContent;
  }

  const words = ({ content = [] }) => content.filter((part) => part.type === "text").map((part) => part.text).join("\n");

  function dress(more) {
    context = { ...context, ...more };
    for (const [theirs, ours] of Object.entries(DRESS)) {
      const value = context.styles?.variables?.[theirs];
      for (const name of value ? ours : []) document.documentElement.style.setProperty(name, value);
    }
    if (context.locale) Page.setLanguage(context.locale);
    if (context.theme === "light" || context.theme === "dark") Page.setTheme(context.theme);
    const { height, maxHeight } = context.containerDimensions ?? {};
    if (height === undefined) send({ method: "ui/notifications/size-changed", params: { height: Math.min(maxHeight ?? HEIGHT, HEIGHT) } });
    full.hidden = context.displayMode === "fullscreen" || !context.availableDisplayModes?.includes("fullscreen");
  }

  /** What the tool has told becomes part of the picture. */
  function take(told) {
    const known = graph.nodes.length > 0;
    settle(graph.merge(told), !known);
    refresh();
    data.waits = false;
    const [start, end] = [told.path[0], told.path.at(-1)].map((name) => name && graph.named(name));
    if (start && end) showPath(start, end);
    else choose(graph.named(told.entity));
  }

  /** Finds places for new entities: near those they are related to, apart from all others. */
  function settle(fresh, all) {
    const { nodes, edges } = graph;
    fresh.forEach((node, index) => {
      const near = [...graph.around(node)].find((other) => !fresh.includes(other)) ?? { x: 0, y: 0 };
      node.x = near.x + 60 * Math.cos(index * 2.4) * Math.sqrt(index + 1) / 2;
      node.y = near.y + 60 * Math.sin(index * 2.4) * Math.sqrt(index + 1) / 2;
    });
    const steps = nodes.length > 600 ? 40 : 160;
    for (let step = 0; step < steps; step += 1) {
      const most = 14 * (1 - step / steps) + 0.5;
      for (const node of nodes) { node.fx = -node.x * 0.01; node.fy = -node.y * 0.01; }
      for (let i = 0; i < nodes.length; i += 1) {
        for (let j = i + 1; j < nodes.length; j += 1) push(nodes[i], nodes[j], (d) => -1500 / (d * d + 40));
      }
      for (const { from, to } of edges) push(from, to, (d) => (d - 70) * 0.06 / d);
      for (const node of all ? nodes : fresh) {
        const length = Math.hypot(node.fx, node.fy) + 1e-6;
        node.x += node.fx * Math.min(1, most / length);
        node.y += node.fy * Math.min(1, most / length);
      }
    }
    if (all) picture.fit();
  }

  function push(one, other, law) {
    const [dx, dy] = [other.x - one.x, other.y - one.y];
    const by = law(Math.hypot(dx, dy) + 0.01);
    one.fx += dx * by; one.fy += dy * by; other.fx -= dx * by; other.fy -= dy * by;
  }

  const told = {
    "ui/notifications/tool-input": ({ arguments: given }) => { source = given?.source ? { source: given.source } : {}; },
    "ui/notifications/tool-result": (result) => {
      if (result.isError || !result.structuredContent) panel.words(words(result));
      else take(result.structuredContent);
    },
    "ui/notifications/tool-cancelled": () => panel.words(say("cancelled")),
    "ui/notifications/host-context-changed": dress,
  };

  window.addEventListener("message", ({ source: from, data: message }) => {
    if (from !== parent || message?.jsonrpc !== "2.0") return;
    if (message.method === undefined) {
      const { resolve, reject, end } = waiting.get(message.id) ?? {};
      if (!waiting.delete(message.id)) return;
      clearTimeout(end);
      if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    } else if (message.id === undefined) told[message.method]?.(message.params ?? {});
    else if (["ping", "ui/resource-teardown"].includes(message.method)) send({ id: message.id, result: {} });
    else send({ id: message.id, error: { code: -32601, message: "Method not found" } });
  });

  async function begin() {
    const { hostCapabilities, hostContext } = await ask("ui/initialize", {
      protocolVersion: "2026-01-26", appInfo: { name: "loom-kb-graph", version: "1" },
      appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
    });
    if (hostCapabilities?.serverTools) {
      actions.more = async (node) => {
        try { take(await call("graph", { entity: node.name, limit: 30 })); } catch (error) { find("said").textContent = say("failed", { why: error.message }); }
      };
      actions.read = (id) => call("fetch", { id });
    }
    dress(hostContext ?? {});
    send({ method: "ui/notifications/initialized" });
  }

  const full = Page.element("button", { type: "button", class: "quiet", "data-say": "full", text: say("full"), hidden: true, onclick: async () => {
    const { mode } = await ask("ui/request-display-mode", { mode: "fullscreen" });
    dress({ displayMode: mode });
  } });
  document.querySelector(".switches").replaceChildren(full); // theme and language are the host's
  find("name").hidden = true;
  document.body.classList.add("app");
  delete actions.hide; // the host's model has the commands
  return { begin };
})();

App.begin().catch((error) => panel.words(say("failed", { why: error.message })));
