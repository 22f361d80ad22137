// Drives a server of Loom with an MCP client for Node.js, and prints what it saw as one line of JSON.
//
//     node drive.mjs CLIENT list|use stdio COMMAND ARGUMENT…
//     node drive.mjs CLIENT list|use http URL
//
// benchmarks/clients.py runs it in a folder that has the clients.

const [name, mode, transport, target, ...rest] = process.argv.slice(2);
const info = { name: "loom-clients", version: "1" };

// The first generation of the TypeScript SDK.
const typescript1 = async () => {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const http = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const stdio = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const client = new Client(info);
  await client.connect(
    transport === "http"
      ? new http.StreamableHTTPClientTransport(new URL(target))
      : new stdio.StdioClientTransport({ command: target, args: rest }),
  );
  return client;
};

// The second one.
const typescript2 = async () => {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const client = new Client(info, { versionNegotiation: { mode: "auto" } });
  await client.connect(
    transport === "http"
      ? new StreamableHTTPClientTransport(new URL(target))
      : new StdioClientTransport({ command: target, args: rest }),
  );
  return client;
};

const ofSdk = async (client) => ({
  names: (await client.listTools()).tools.map((tool) => tool.name),
  call: (tool, args) => client.callTool({ name: tool, arguments: args }),
  close: () => client.close(),
});

const aiSdk = async () => {
  const { createMCPClient } = await import("@ai-sdk/mcp");
  const { Experimental_StdioMCPTransport: Stdio } = await import("@ai-sdk/mcp/mcp-stdio");
  const wire = transport === "http" ? { type: "http", url: target } : new Stdio({ command: target, args: rest });
  const client = await createMCPClient({ transport: wire });
  const tools = await client.tools();
  return {
    names: Object.keys(tools),
    call: (tool, args) => tools[tool].execute(args, { toolCallId: tool, messages: [] }),
    close: () => client.close(),
  };
};

const mcpUse = async () => {
  const { MCPClient } = await import("mcp-use/client");
  const entry = transport === "http" ? { url: target } : { command: target, args: rest };
  const client = new MCPClient({ mcpServers: { loom: entry } });
  const session = await client.createSession("loom");
  return {
    names: (await session.listTools()).map((tool) => tool.name),
    call: (tool, args) => session.callTool(tool, args),
    close: () => client.closeAllSessions(),
  };
};

const clients = {
  "@modelcontextprotocol/sdk": async () => ofSdk(await typescript1()),
  "@modelcontextprotocol/client": async () => ofSdk(await typescript2()),
  "@ai-sdk/mcp": aiSdk,
  "mcp-use": mcpUse,
};

const { names, call, close } = await clients[name]();
const seen = { tools: names };
if (mode === "use") {
  const added = await call("add", { text: "# 青岛港\n\n青岛港的港长是李明。", source: "知识库" });
  const [job] = added.content[0].text.match(/job-[0-9a-f]+/);
  await call("job", { id: job, action: "wait" }); // a busy machine does not finish within the call
  seen.found = (await call("query", { query: "谁是青岛港的港长？" })).content[0].text;
  const id = / id=(\S+)/.exec(seen.found)?.[1];
  seen.fetched = id && (await call("fetch", { id })).content[0].text;
}
process.stdout.write(`${JSON.stringify(seen)}\n`);
await close();
process.exit(0); // some leave timers behind
