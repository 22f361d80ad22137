"""An MCP server with one tool, for the cells about MCP; it runs on either generation of the SDK."""

try:
    from mcp.server import MCPServer
except ImportError:  # before 2.0
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("echo", log_level="WARNING")


@server.tool()
async def echo(text: str) -> str:
    """Give a text back, twice."""
    return f"{text} {text}"


if __name__ == "__main__":
    server.run()
