// Drives loom-kb with a TypeScript client and prints what it saw as one line of JSON.
//
//     node drive.mjs v1|v2 stdio COMMAND ARGUMENT…
//     node drive.mjs v1|v2 http URL

const [generation, transport, target, ...rest] = process.argv.slice(2);
const info = { name: "loom-tests", version: "1" };

const open = {
  v1: async () => {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const client = new Client(info);
    if (transport === "http") {
      const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
      return [client, new StreamableHTTPClientTransport(new URL(target))];
    }
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    return [client, new StdioClientTransport({ command: target, args: rest })];
  },
  v2: async () => {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const client = new Client(info, { versionNegotiation: { mode: "auto" } });
    if (transport === "http") {
      return [client, new StreamableHTTPClientTransport(new URL(target))];
    }
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    return [client, new StdioClientTransport({ command: target, args: rest })];
  },
};

const [client, wire] = await open[generation]();
await client.connect(wire);
const call = (name, args) => client.callTool({ name, arguments: args });
const tools = (await client.listTools()).tools; // from here on the client checks answers against output schemas
const added = await call("add", { text: "# 青岛港\n\n青岛港的港长是李明。", source: "知识库" });
const found = await call("query", { query: "谁是青岛港的港长？" });
const refused = await call("query", { query: "x", limit: 0 });
console.log(
  JSON.stringify({
    server: client.getServerVersion().name,
    version: client.getNegotiatedProtocolVersion?.(), // the first generation does not tell
    tools: tools.map((tool) => tool.name),
    added: added.structuredContent.job.state,
    text: found.content[0].text,
    passages: found.structuredContent.passages,
    refused: refused.isError,
  }),
);
await client.close();
