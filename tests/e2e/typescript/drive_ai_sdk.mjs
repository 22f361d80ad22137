// Drives a server of Loom with the MCP client of Vercel's AI SDK, and prints what it saw as one line of JSON.
//
//     node drive_ai_sdk.mjs stdio COMMAND ARGUMENT…
//     node drive_ai_sdk.mjs http URL
//
// Over stdio this client sends `server/discover`, waits for a second, and then sends `initialize`.

import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as Stdio } from "@ai-sdk/mcp/mcp-stdio";

const [transport, target, ...rest] = process.argv.slice(2);
const wire = transport === "http" ? { type: "http", url: target } : new Stdio({ command: target, args: rest });
const client = await createMCPClient({ transport: wire });
const tools = await client.tools();
const call = (name, args) => tools[name].execute(args, { toolCallId: name, messages: [] });
const seen = { version: client.initializeResult?.protocolVersion, tools: Object.keys(tools) };
if (tools.add) {
  const added = await call("add", { text: "# 青岛港\n\n青岛港的港长是李明。", source: "知识库" });
  const { id } = added.structuredContent.job;
  await call("job", { id, action: "wait" }); // `add` gives a slow machine three seconds
  const found = await call("query", { query: "谁是青岛港的港长？" });
  const best = found.structuredContent.passages[0];
  seen.text = found.content[0].text;
  seen.fetched = (await call("fetch", { id: best.id })).content[0].text;
  seen.refused = (await call("query", { query: "x", limit: 0 })).isError;
}
console.log(JSON.stringify(seen));
await client.close();
