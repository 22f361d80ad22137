// Has loom-agent-server work for a TypeScript client, and prints what it saw as one line of JSON.
//
//     node drive_agent.mjs v1|v2 stdio|http GOAL [URL | COMMAND ARGUMENT…]
//
// GOAL is what the user is asked about: a call that names 密码.md is declined, any other approved.

import { call, connect } from "./connect.mjs";

const [generation, transport, goal, target, ...rest] = process.argv.slice(2);
const asked = [];
const answer = (message) => {
  asked.push(message);
  return message.includes("密码.md") ? { action: "decline" } : { action: "accept", content: {} };
};
const open = (user) => connect(generation, transport, target, rest, user);
let client = await open(answer);
await client.listTools(); // from here on the client checks answers against output schemas
const use = async (name, args, options) => {
  const result = await call(generation, client, name, args, options);
  if (result.isError) {
    throw new Error(result.content[0].text);
  }
  return result.structuredContent;
};
const told = [];
const progress = { onprogress: (value) => told.push(value.message) };
const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

let names = [];
while (!names.includes("文件:read_text_file") || !names.includes("知识:query")) {
  names = (await use("tool_search", { limit: 100 })).tools.map((tool) => tool.name);
  await pause(0.1);
}
const worked = await use("agent_run", { goal }, progress);
const version = client.getNegotiatedProtocolVersion?.();
await client.close();

client = await open();
const waiting = await use("agent_run", { goal: "请记一条笔记：灯塔", profile: "港务" });
const decisions = waiting.pending.map((each) => ({ id: each.id, action: "approve" }));
const decided = await use("agent_decide", { run_id: waiting.run_id, decisions });
const left = await use("agent_run", { goal: "请记一条笔记：海", profile: "限时" });
const refused = await use("agent_wait", { run_id: left.run_id, after_seq: left.last_seq });
const begin = async (seconds) =>
  (await use("agent_run", { goal: `等待 ${seconds}`, wait_seconds: 0, profile: "限时" })).run_id;
const control = async (run_id, action) => (await use("agent_control", { run_id, action })).status;
const first = await begin(0.5);
const paused = await control(first, "pause");
await control(first, "resume");
const resumed = (await use("agent_wait", { run_id: first })).status;
const aborted = await control(await begin(60), "abort");
let cut = "";
try {
  await use("agent_run", { goal: "等待 2", profile: "限时" }, { timeout: 700 });
} catch (error) {
  cut = String(error.code);
}
const found = (await use("agent_runs", { limit: 1 })).runs[0];
await client.close();

client = await open();
const again = await use("agent_wait", { run_id: found.run_id });
await client.close();
console.log(
  JSON.stringify({
    version,
    asked: asked.length,
    told,
    worked: worked.status,
    output: worked.output,
    decided: decided.status,
    refused: refused.output,
    paused,
    resumed,
    aborted,
    cut,
    found: found.status,
    again: again.output,
  }),
);
