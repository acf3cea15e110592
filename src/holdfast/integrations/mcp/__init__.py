"""Holdfast as a server of the Model Context Protocol: save points that an agent asks for itself.

`server.build_server` returns the server, `holdfast mcp` runs it over standard input and output. Each call of a
tool (`tools`) opens the project's database, works on one session (`place`), and closes it again; what it
answers is in `answers`. Only `server` needs the protocol's SDK.
"""
