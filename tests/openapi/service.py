"""A service of its own for a test: a free port, an empty directory, gone afterwards."""

import contextlib
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

START_PATIENCE = 60.0


def address(process):
    """What the service says about where it listens."""
    for line in process.stdout:
        found = re.search(r"listening on (http://\S+)", line)
        if found:
            return found.group(1)
    raise RuntimeError(f"the service did not start: exit code {process.wait()}")


def wait_until_ready(url):
    deadline = time.monotonic() + START_PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def running(binary):
    """Gives the address of a service that runs for as long as the block."""
    with tempfile.TemporaryDirectory(prefix="leasehold-openapi-") as home:
        log = Path(home, "log")
        arguments = [binary, "serve", "--data-dir", f"{home}/data", "--listen", "127.0.0.1:0"]
        with log.open("w") as errors, subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            try:
                url = address(process)
                wait_until_ready(url)
                yield url
                if process.poll() is not None:
                    raise RuntimeError(f"the service ended by itself: {process.returncode}")
                panics = [line for line in log.read_text().splitlines() if "panicked" in line]
                if panics:
                    raise RuntimeError(f"a handler panicked: {panics[0]}")
            finally:
                process.terminate()
                process.wait()
