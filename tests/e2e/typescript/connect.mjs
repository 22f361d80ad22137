// Opens clients of both generations of the TypeScript SDK, over stdio and HTTP.
//
// v1 and v2 are the generations of the SDK; v2 opens in the era of 2026-07-28, v2-legacy with a handshake.

const info = { name: "loom-tests", version: "1" };

const second = async (mode, transport, target, rest, options) => {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const client = new Client(info, { ...options, versionNegotiation: { mode } });
  if (transport === "http") {
    return [client, new StreamableHTTPClientTransport(new URL(target))];
  }
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  return [client, new StdioClientTransport({ command: target, args: rest })];
};

const first = async (transport, target, rest, options) => {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const client = new Client(info, options);
  if (transport === "http") {
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    return [client, new StreamableHTTPClientTransport(new URL(target))];
  }
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  return [client, new StdioClientTransport({ command: target, args: rest })];
};

// A connected client; `answer` is asked for the user where it is given.
export const connect = async (generation, transport, target, rest, answer) => {
  const options = answer ? { capabilities: { elicitation: { form: {} } } } : {};
  const [client, wire] =
    generation === "v1"
      ? await first(transport, target, rest, options)
      : await second(generation === "v2" ? "auto" : "legacy", transport, target, rest, options);
  if (answer && generation === "v1") {
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    client.setRequestHandler(ElicitRequestSchema, async (request) => answer(request.params.message));
  } else if (answer) {
    client.setRequestHandler("elicitation/create", async (request) => answer(request.params.message));
  }
  await client.connect(wire);
  return client;
};

// Calls a tool; `options` are those of a request.
export const call = (generation, client, name, args, options = {}) => {
  const params = { name, arguments: args };
  return generation === "v1" ? client.callTool(params, undefined, options) : client.callTool(params, options);
};
