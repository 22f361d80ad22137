// Asks loom-agent-server for what every client needs, and prints what it saw as one line of JSON.
//
//     node ask_agent.mjs v1|v2 stdio|http [URL | COMMAND ARGUMENT…]
//
// A tool is called, the user approves a call, and a run is waited for that takes longer than its call.

import { call, connect } from "./connect.mjs";

const [generation, transport, target, ...rest] = process.argv.slice(2);
const asked = [];
const answer = (message) => {
  asked.push(message);
  return { action: "accept", content: {} };
};
const client = await connect(generation, transport, target, rest, answer);
await client.listTools(); // from here on the client checks answers against output schemas
const use = async (name, args) => {
  const result = await call(generation, client, name, args);
  if (result.isError) {
    throw new Error(result.content[0].text);
  }
  return result.structuredContent;
};
const called = await use("agent_run", { goal: "几点了？" });
const approved = await use("agent_run", { goal: "请记一条笔记：灯塔" });
const begun = await use("agent_run", { goal: "等待 0.3", wait_seconds: 0 });
const waited = await use("agent_wait", { run_id: begun.run_id });
const version = client.getNegotiatedProtocolVersion?.();
await client.close();
console.log(JSON.stringify({ version, asked, called, approved, begun: begun.status, waited }));
