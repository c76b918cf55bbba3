"""Calls tools by MCP's client for Python: over HTTP, or by the program that the arguments name.

Prints the version of MCP and the names of all tools, then the result of each call: a line [name, arguments] of stdin.
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

ENVIRONMENT = {name: os.environ[name] for name in ("MAILKEEL_URL", "MAILKEEL_API_KEY")}


async def main():
    url, key = ENVIRONMENT.values()
    http_client = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=30)
    if program := sys.argv[1:]:
        server = StdioServerParameters(command=program[0], args=program[1:], env=ENVIRONMENT)
    else:
        server = streamable_http_client(f"{url}/mcp", http_client=http_client)
    async with http_client, Client(server) as client:
        listed = await client.list_tools()
        names = [tool.name for tool in listed.tools]
        print(json.dumps({"version": client.protocol_version, "tools": names}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, arguments = json.loads(line)
            result = await client.call_tool(name, arguments)
            print(result.model_dump_json(by_alias=True), flush=True)


asyncio.run(main())
