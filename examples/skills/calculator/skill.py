"""A calculator that speaks JSON-RPC 2.0 over its standard streams, one request on each line."""

import json
import math
import operator
import re
import sys

TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|([-+*/()!]))")
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


class Calculation:
    """Reads an expression from left to right; never eval, because an input is somebody else's text."""

    def __init__(self, text):
        self.tokens = []
        place = 0
        while text[place:].strip():
            found = TOKEN.match(text, place)
            if found is None:
                raise ValueError(f"cannot read {text[place:]!r}")
            self.tokens.append(found.group().strip())
            place = found.end()

    def value(self):
        result = self.sum()
        if self.tokens:
            raise ValueError(f"unexpected {self.tokens[0]!r}")
        return int(result) if isinstance(result, float) and result.is_integer() else result

    def sum(self):
        return self.chain(self.product, "+-")

    def product(self):
        return self.chain(self.factor, "*/")

    def chain(self, part, operators):
        result = part()
        while self.tokens and self.tokens[0] in operators:
            result = OPERATIONS[self.tokens.pop(0)](result, part())
        return result

    def factor(self):
        if not self.tokens:
            raise ValueError("the expression ends too early")
        token = self.tokens.pop(0)
        if token == "-":
            return -self.factor()
        if token == "(":
            result = self.sum()
            if not self.tokens or self.tokens.pop(0) != ")":
                raise ValueError("a bracket is not closed")
        else:
            result = float(token) if "." in token else int(token)
        while self.tokens and self.tokens[0] == "!":
            self.tokens.pop(0)
            result = math.factorial(result)
        return result


def invoke(params):
    if "expression" in params:
        return {"result": Calculation(params["expression"]).value()}
    text = params["input"]
    if params["operation"] == "reverse":
        return {"result": text[::-1]}
    if params["operation"] == "is_palindrome":
        return {"result": text == text[::-1]}
    raise ValueError(f"unknown operation {params['operation']!r}")


METHODS = {"invoke": invoke, "healthcheck": lambda params: {"status": "ok"}}


def answer(line):
    number = None
    try:
        request = json.loads(line)
        number = request.get("id")
        if request["method"] not in METHODS:
            return {"id": number, "error": {"code": -32601, "message": f"no method {request['method']}"}}
        return {"id": number, "result": METHODS[request["method"]](request.get("params", {}))}
    except json.JSONDecodeError as error:
        return {"id": None, "error": {"code": -32700, "message": str(error)}}
    except Exception as error:
        return {"id": number, "error": {"code": -32000, "message": f"{type(error).__name__}: {error}"}}


def main():
    for line in sys.stdin:
        if line.strip():
            print(json.dumps({"jsonrpc": "2.0", **answer(line)}), flush=True)


if __name__ == "__main__":
    main()
