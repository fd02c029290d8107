"""A service that can be killed and started again quickly: a process with the model loaded forks one for each life."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import httpx

_NURSERY = """
import os, signal, sys
import torch
torch.set_num_threads(1)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are buried at once
from samplekit.server import LocalService, load_model
loaded = load_model()
print("ready", flush=True)
for line in sys.stdin:
    port, folder = line.rstrip("\\n").split(" ", 1)
    child = os.fork()
    if child == 0:
        with LocalService(model=loaded, port=int(port), state_dir=folder) as service:
            signal.pause()
    print(child, flush=True)
"""


class MortalService:
    """Answers on one port, life after life, from one state directory."""

    def __init__(self, nursery, port, folder):
        self._nursery, self._port, self._folder = nursery, port, folder
        self.url = f"http://127.0.0.1:{port}"
        self.pid = None
        self.lives = 0

    def start(self):
        self._nursery.stdin.write(f"{self._port} {self._folder}\n")
        self._nursery.stdin.flush()
        self.pid = int(self._nursery.stdout.readline())
        self.lives += 1

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            for _ in range(1000):  # until it is gone, with its lock and its port
                os.kill(self.pid, signal.SIGKILL)
                time.sleep(0.005)
            raise AssertionError(f"process {self.pid} does not die")

    def wait_until_up(self):
        for _ in range(600):
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/healthz").json()
            time.sleep(0.02)
        raise AssertionError("the service does not come up")


@contextlib.contextmanager
def nursery():
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _NURSERY],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(20)
        process.stdout.close()
