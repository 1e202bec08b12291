"""Holds the served OpenAPI document against the service that serves it.

    tests/openapi/run [--cases 1000] [--seed 1] [--only client|schemathesis]

Two things are done. A public generator makes a Python client from the document, and the client
drives the service. Then schemathesis makes cases for each operation, valid ones and ones that are
wrong in a known way, and compares every answer with the document. Operations are dealt out to two
processes a core, each with a service of its own: threads would share one core, and every other
moment is spent waiting for a disk.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import service

HERE = Path(__file__).parent
TOOLS = Path(sys.executable).parent


def tool(name, *arguments, **options):
    """Runs a tool of this environment; the generator looks for a formatter on the path."""
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **options.pop("env", {})}
    return subprocess.run([TOOLS / name, *arguments], env=environment, **options)


def document(url):
    with urllib.request.urlopen(f"{url}/v1/openapi.json", timeout=30) as answer:
        return json.load(answer)


def client(options):
    """Generates a client and runs the tests that use it."""
    with service.running(options.binary) as url, tempfile.TemporaryDirectory() as home:
        source = Path(home, "openapi.json")
        source.write_text(json.dumps(document(url)))
        made = tool(
            "openapi-python-client", "generate", "--path", source, "--output-path", f"{home}/out",
            "--meta", "none", "--config", HERE / "generator.yml",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        # It goes on after what it does not understand, and then the client lacks something.
        if made.returncode != 0 or "Unable" in made.stdout or "WARNING parsing" in made.stdout:
            print(made.stdout)
            return False
        Path(home, "out").rename(Path(home, "leasehold_client"))
        done = tool(
            "pytest", "-q", "-p", "no:cacheprovider", HERE / "client_test.py",
            env={"PYTHONPATH": home, "LEASEHOLD_URL": url, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        return done.returncode == 0


def weight(operation):
    """Roughly what a case costs: bodies and parameters are what takes time to make."""
    return 2 * len(operation.get("parameters", [])) + (12 if "requestBody" in operation else 1)


def deal(described, hands):
    """Operations by the first part of their path, so that what belongs together meets."""
    families = {}
    for path, methods in described["paths"].items():
        family = path.removeprefix("/v1").split("/")[1]
        for operation in methods.values():
            ids, load = families.get(family, ([], 0))
            families[family] = (ids + [operation["operationId"]], load + weight(operation))
    dealt = [([], 0) for _ in range(hands)]
    for ids, load in sorted(families.values(), key=lambda one: -one[1]):
        least = min(range(hands), key=lambda hand: dealt[hand][1])
        dealt[least] = (dealt[least][0] + ids, dealt[least][1] + load)
    return [ids for ids, _ in dealt if ids]


def fuzz(options, ids):
    """Runs the cases of some operations; true if nothing was found."""
    start = time.monotonic()
    with service.running(options.binary) as url:
        chosen = [part for one in ids for part in ("--include-operation-id", one)]
        done = tool(
            "schemathesis", "--config-file", HERE / "schemathesis.toml",
            "run", f"{url}/v1/openapi.json", "--seed", str(options.seed),
            "--max-examples", str(options.cases), "--workers", "1", "--no-color", *chosen,
            env={"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE), "LEASEHOLD_URL": url},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=options.scratch,
        )
    minutes = (time.monotonic() - start) / 60
    lines = done.stdout.splitlines()
    cases = [line.strip() for line in lines if " generated, " in line]
    print(f"{len(ids)} operations, {minutes:.1f} min: {'; '.join(cases)}", flush=True)
    if done.returncode != 0:
        print(done.stdout, flush=True)
    return done.returncode == 0


def schemathesis(options):
    print(f"seed {options.seed}, {options.cases} cases an operation", flush=True)
    with service.running(options.binary) as url:
        hands = deal(document(url), 2 * (os.cpu_count() or 1))
    with (
        tempfile.TemporaryDirectory() as options.scratch,
        concurrent.futures.ThreadPoolExecutor(len(hands)) as pool,
    ):
        return all(list(pool.map(lambda ids: fuzz(options, ids), hands)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["client", "schemathesis"])
    options = parser.parse_args()
    parts = {"client": client, "schemathesis": schemathesis}
    chosen = [options.only] if options.only else list(parts)
    outcomes = [parts[name](options) for name in chosen]
    sys.exit(0 if all(outcomes) else 1)


if __name__ == "__main__":
    main()
