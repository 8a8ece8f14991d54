"""Tools of MCP servers: what a client names, the protocol, the two transports, and a session's servers."""
