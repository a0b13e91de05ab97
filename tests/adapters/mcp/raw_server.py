"""A server without the SDK, which answers each call with the line that its argument names: `raw_server.py ANSWER`."""

import json
import sys
from typing import Any

TOOL = {"name": "go", "inputSchema": {"type": "object"}}
START = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}
KNOWN: dict[str, Any] = {"initialize": {"result": START}, "tools/list": {"result": {"tools": [TOOL]}}}
UNKNOWN: dict[str, Any] = {"error": {"code": -32601, "message": "unknown"}}
ANSWERS: dict[str, Any] = {
    "no result": {"result": {"content": 5}},
    "other error": {"error": {"code": -32000, "message": "out of paper"}},
    "own error": {"error": {"code": -32602, "message": "no such page"}},
    "not json": None,
}


def main(answer: str) -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        known = {
            "initialize": {"result": START},
            "tools/list": {"result": {"tools": [TOOL]}},
            "tools/call": ANSWERS[answer],
        }
        said = known.get(asked["method"], {"error": {"code": -32601, "message": "unknown"}})
        if said is None:
            sys.stdout.write("I am not JSON\n")
            sys.stdout.flush()
            return
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
