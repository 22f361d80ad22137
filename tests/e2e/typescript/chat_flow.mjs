// Talks with loom-flow-server in Chinese, and prints what it saw as one line of JSON.
//
//     node chat_flow.mjs v1|v2 stdio|http [URL | COMMAND ARGUMENT…]
//
// First as a client that cannot ask its user and passes on what they say, then as one that has forms.

import { call, connect } from "./connect.mjs";

const [generation, transport, target, ...rest] = process.argv.slice(2);
const open = async (answer) => {
  const client = await connect(generation, transport, target, rest, answer);
  const tools = (await client.listTools()).tools; // from here on the client checks answers against output schemas
  const use = async (name, args) => {
    const result = await call(generation, client, name, args);
    if (result.isError) {
      throw new Error(result.content[0].text);
    }
    return result.structuredContent;
  };
  return { client, tools: tools.map((tool) => tool.name), use };
};

const plain = await open();
const said = [];
let session_id = "";
for (const message of ["我想请三天假", "2027年3月1日", "改成两天", "是的"]) {
  const reply = await plain.use("flow_chat", { message, session_id });
  session_id = reply.session_id;
  said.push({ status: reply.status, text: reply.text });
}
const refused = await call(generation, plain.client, "flow_run", { flow_id: "没有" });
const version = plain.client.getNegotiatedProtocolVersion?.();
await plain.client.close();

const asked = [];
const formed = await open((message) => {
  asked.push(message);
  return { action: "accept", content: { order_id: "BO20500" } };
});
const order = await formed.use("order_status", {});
await formed.client.close();
console.log(
  JSON.stringify({
    version,
    tools: plain.tools,
    said,
    refused: refused.isError && refused.content[0].text,
    asked,
    order: { status: order.status, output: order.output, structured: order.structured },
  }),
);
