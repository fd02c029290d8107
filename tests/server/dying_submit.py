"""`samplekit submit` in processes that kill themselves (kill -9) at a given moment; one that has loaded all forks them."""

import contextlib
import json
import os
import subprocess
import sys

_NURSERY = """
import json, os, signal, sys, traceback
from pathlib import Path
import samplekit.server.local
import samplekit.client.downloads as downloads
import samplekit.client.drivers as drivers
import samplekit.files.run_folder as run_folder
import samplekit.wire.requests as requests
from samplekit.cli.main import _run
from samplekit.cli.submit_state import RunState
import torch
torch.set_num_threads(1)
requests.INLINE_LIMIT_BYTES = 1_000  # so that small batches are uploaded

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def fatal(owner, name, number, when):
    "Let the call of this number be the last thing that happens."
    call, count = getattr(owner, name), 0
    def counted(*arguments, **options):
        nonlocal count
        count += 1
        if count == number and when == "before":
            die()
        if count == number and when == "half":
            half(*arguments, **options)
        found = call(*arguments, **options)
        if count == number:
            die()
        return found
    setattr(owner, name, counted)

def half(folder, **metrics):
    with (folder.path / "metrics.jsonl").open("ab") as stream:
        stream.write(b'{"step":' + str(metrics["step"]).encode() + b',"lo')
    die()

PLACES = {
    "request": (drivers.BlockingDriver, "_send"),
    "state": (RunState, "save"),
    "metrics": (run_folder.RunFolder, "log"),
    "piece": (downloads.PartFile, "append"),
}
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        out = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = 70
        try:
            if order["place"]:
                fatal(*PLACES[order["place"]], order["number"], order["when"])
            code = _run(order["arguments"])
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Submitters:
    """Runs `samplekit submit`, to its end or to a given moment."""

    def __init__(self, process):
        self._process = process

    def run(self, log, *arguments, place="", number=0, when=""):
        """Give the exit code, -9 of one that was killed, and what it said."""
        order = {"arguments": ["submit", *map(str, arguments)], "log": str(log), "place": place, "number": number}
        self._process.stdin.write(json.dumps({**order, "when": when}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline()), log.read_text()


@contextlib.contextmanager
def submitters():
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("TOGETHER_BASE_URL", None)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _NURSERY],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        yield Submitters(process)
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(20)
        process.stdout.close()
