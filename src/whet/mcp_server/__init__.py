"""`whet mcp`: a server on the standard streams whose few tools let an agent test and decide inside one project."""
