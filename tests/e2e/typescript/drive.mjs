// Drives a server of Loom with a TypeScript client and prints what it saw as one line of JSON.
//
//     node drive.mjs v1|v2|v2-legacy stdio COMMAND ARGUMENT…
//     node drive.mjs v1|v2|v2-legacy http URL
//
// See connect.mjs for v1, v2 and v2-legacy.

import { call as callTool, connect } from "./connect.mjs";

const [generation, transport, target, ...rest] = process.argv.slice(2);
const client = await connect(generation, transport, target, rest);
const progress = [];
const options = { onprogress: (value) => progress.push(value.progress) };
const call = (name, args) => callTool(generation, client, name, args, options);
const tools = (await client.listTools()).tools; // from here on the client checks answers against output schemas
let added;
if (tools.some((tool) => tool.name === "add")) {
  added = (await call("add", { text: "# 青岛港\n\n青岛港的港长是李明。", source: "知识库" })).structuredContent.job;
  if (added.state !== "done") {
    // `add` gives a slow machine three seconds.
    added = (await call("job", { id: added.id, action: "wait" })).structuredContent.jobs[0];
  }
}
const found = await call("query", { query: "谁是青岛港的港长？", response_format: "detailed" });
const best = found.structuredContent.passages[0];
const resource = (await client.listResources()).resources[0]; // a server without documents of its own has none
const part = encodeURIComponent;
const uri = resource?.uri ?? `loom://${part(best.source)}/${part(best.id.slice(best.source.length + 1))}`;
const read = await client.readResource({ uri });
const refused = await call("query", { query: "x", limit: 0 });
console.log(
  JSON.stringify({
    server: client.getServerVersion().name,
    version: client.getNegotiatedProtocolVersion?.(), // the first generation does not tell
    tools: tools.map((tool) => tool.name),
    added: added?.state,
    text: found.content[0].text,
    passages: found.structuredContent.passages,
    resource: resource?.title,
    read: read.contents[0].text,
    progress,
    refused: refused.isError,
  }),
);
await client.close();
