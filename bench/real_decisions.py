"""`python bench/real_decisions.py`: run A against A by the real command, and count how often they are called different.

Each run is `whet eval` with two arms of one skill, followed by `whet gate`. `weights`: 20 tasks of 5 runs, one of which
weighs 5 and passes half of the time; the others always pass. `judge`: a judge that is wrong about 10 % of answers, and
`judge.error` says so. `down`: a judge that is down for half of the failures of B, and for 15 % of all answers of A.
`selected`: a run, and one of what failed in it (`--last-failed`), which `whet gate` refuses, also if `--shared`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from projects import environment, folder, whet

TASKS, RUNS = 20, 5
# How often answers are right; of `weights`, those of the first task.
RATES = {"weights": 0.5, "judge": 0.7, "down": 0.7, "selected": 0.7}
# Answers "good" or "bad", in words that its arm and its run choose; a stable one decides for each task once.
SKILL = """\
import hashlib, json, os, random, sys
for line in sys.stdin:
    request = json.loads(line)
    task = request["params"]
    drawn = random.Random(f"{os.environ['SEED']} {task.get('name')}" if task.get("stable") else None)
    good = drawn.random() < task.get("rate", 1)
    words = hashlib.sha256(f"{os.environ['SEED']} {os.environ['STYLE']} {task.get('name')}".encode()).hexdigest()[:8]
    if not task.get("judged"):
        words = ""
    answer = f"{'good' if good else 'bad'} {words}".strip()
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"result": answer}}), flush=True)
"""


def write_project(where: Path, kind: str, judge: str) -> None:
    """Write a skill, its tasks and the settings."""
    root = where / "skills" / "answers"
    root.mkdir(parents=True)
    (root / "skill.py").write_text(SKILL)
    about = {"id": "answers", "name": "answers", "version": "1.0.0", "adapterType": "subprocess"}
    (root / "skill.json").write_text(json.dumps({**about, "entrypoint": f"{sys.executable} skill.py"}))
    (root / "adapter.config.json").write_text(json.dumps({"keepAlive": True}))
    judged = kind in {"judge", "down"}
    tasks = [
        {
            "id": f"t{number}",
            "inputData": {
                "name": f"t{number}",
                "rate": 1.0 if kind == "weights" and number else RATES[kind],
                "stable": kind == "judge",
                "judged": judged,
            },
            "expectedOutput": {"type": "llm_judge", "judgePrompt": "Is it good?"}
            if judged
            else {"type": "exact", "value": "good"},
            "weight": 5 if number == 0 and kind == "weights" else 1,
        }
        for number in range(TASKS)
    ]
    benchmark = {
        "id": "b",
        "name": "b",
        "domain": "d",
        "version": "1.0.0",
        "scoringMethod": "weighted_mean",
        "tasks": tasks,
    }
    (where / "benchmark.json").write_text(json.dumps(benchmark))
    error = "error = 10\n" if kind == "judge" else ""
    lines = f'[run]\nsandbox = "local"\n\n[judge]\nurl = "{judge}"\nmodel = "m"\nretries = 0\nmax_parallel = 8\n{error}'
    (where / "whet.toml").write_text(lines)


class Judge(BaseHTTPRequestHandler):
    """A judge that is wrong about one answer in ten, each time in the same way, or that is down at times."""

    kind = "judge"

    def do_POST(self) -> None:
        """Answer as chat completions do."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = asked["messages"][-1]["content"].split("BEGIN ANSWER")[1].split("-----")[1].split("-----")[0].strip()
        draw = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 16**8
        good = "good" in text
        if self.kind == "judge" and draw < 0.1:
            good = not good
        if self.kind == "down" and self._is_down(text, good=good):
            # Not 400: a judge that refuses an answer says something about the answer.
            self.send_error(503)
            return
        verdict = {"rationale": "so", "rating": 10 if good else 0, "manipulation": False}
        name = asked["tools"][0]["function"]["name"]
        call = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(verdict)}}
        body = json.dumps({"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_down(self, text: str, *, good: bool) -> bool:
        draw = hashlib.sha256(f"down {text}".encode()).digest()[0] / 256
        is_second = any(words in text for words in SECOND)
        return (not good and draw < 0.5) if is_second else draw < 0.15

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


# The words of the second arm, by which the judge that is down knows it.
SECOND: set[str] = set()


@contextmanager
def serve(kind: str) -> Iterator[str]:
    """Run the judge, and yield its address."""
    Judge.kind = kind
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def one(kind: str, seed: int, judge: str) -> str:
    """Run A against A once, and return the verdict."""
    with folder() as where:
        write_project(where, kind, judge)
        env = {**environment(where), "SEED": str(seed), "OPENAI_API_KEY": "k", "NO_COLOR": "1"}
        names = ("same-a", "same-b")
        SECOND.clear()
        SECOND.update(
            hashlib.sha256(f"{seed} {names[1]} t{number}".encode()).hexdigest()[:8] for number in range(TASKS)
        )
        arms = [word for name in names for word in ("--arm", f"{name}=env:STYLE={name},env:SEED={seed}")]
        command = whet("eval", "--skills", "skills", *arms, "--benchmark", "benchmark.json", "--runs", str(RUNS))
        ran = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, check=False)
        gate = subprocess.run(whet("gate", "--json"), cwd=where, env=env, capture_output=True, text=True, check=False)
        if not gate.stdout.startswith("{"):
            raise SystemExit(f"{ran.stdout}{ran.stderr}{gate.stdout}{gate.stderr}")
        document = json.loads(gate.stdout)
        return str(document["comparison"]["verdict"])


def selected(seed: int, judge: str) -> str:
    """Run once, run again what failed, and return whether the two are compared."""
    with folder() as where:
        write_project(where, "selected", judge)
        env = {**environment(where), "SEED": str(seed), "STYLE": "", "NO_COLOR": "1"}
        command = whet("eval", "--skills", "skills", "--benchmark", "benchmark.json", "--runs", "1")
        for words in (command, [*command, "--last-failed"]):
            subprocess.run(words, cwd=where, env=env, capture_output=True, check=False)
        runs = sorted(path.name for path in (where / ".whet" / "runs").iterdir() if not path.is_symlink())
        gates = [
            subprocess.run(whet("gate", *runs, *more), cwd=where, env=env, capture_output=True, text=True, check=False)
            for more in ((), ("--shared",))
        ]
        is_refused = all(gate.returncode == 2 and f"ran only what failed in {runs[0]}" in gate.stderr for gate in gates)
        return "refused" if is_refused else "better"


def main() -> None:
    """Run all kinds, and print the verdicts of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("kinds", nargs="*", default=["weights", "judge", "down", "selected"])
    chosen = parser.parse_args()
    for kind in chosen.kinds:
        with serve(kind) as address:
            began = time.perf_counter()
            run_once = partial(selected, judge=address) if kind == "selected" else partial(one, kind, judge=address)
            found = Counter(run_once(seed=seed) for seed in range(chosen.runs))
        called = found["better"] + found["worse"]
        took = f"in {time.perf_counter() - began:.0f} s"
        print(f"{kind}: {called} of {chosen.runs} called different; {dict(found)}, {took}", flush=True)


if __name__ == "__main__":
    main()
