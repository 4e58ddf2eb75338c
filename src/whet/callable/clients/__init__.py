"""Clients of callable skills: a program, an HTTP endpoint, or a tool of an MCP server."""
