"""MCP servers as tools, with real server processes."""
