"""A search over a few pages, as a program that answers JSON-RPC 2.0 on its standard streams."""

import json
import sys
from pathlib import Path

PAGES = json.loads(Path(__file__).with_name("pages.json").read_text(encoding="utf-8"))


def search(params):
    asked = set(params["query"].lower().split())
    best = max(PAGES, key=lambda page: len(asked & set(page["words"].split())) / len(page["words"].split()))
    if not asked & set(best["words"].split()):
        return {"result": "nothing was found", "source": "pages.json"}
    return {"result": best["text"], "source": f"pages.json#{best['id']}"}


def answer(line):
    number = None
    try:
        request = json.loads(line)
        number = request.get("id")
        if request["method"] == "healthcheck":
            return {"id": number, "result": {"status": "ok", "pages": len(PAGES)}}
        if request["method"] != "invoke":
            return {"id": number, "error": {"code": -32601, "message": f"no method {request['method']}"}}
        return {"id": number, "result": search(request["params"])}
    except json.JSONDecodeError as error:
        return {"id": None, "error": {"code": -32700, "message": str(error)}}
    except Exception as error:
        return {"id": number, "error": {"code": -32000, "message": f"{type(error).__name__}: {error}"}}


for line in sys.stdin:
    if line.strip():
        print(json.dumps({"jsonrpc": "2.0", **answer(line)}), flush=True)
