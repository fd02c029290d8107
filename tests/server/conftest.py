import contextlib
import socket

import httpx
import numpy as np
import pytest
import torch
from mortal_service import MortalService, nursery
from plain_caller import opened_session

from samplekit import build_sample
from samplekit.server import LocalService, load_model

torch.set_num_threads(1)  # a model this small gains nothing from two, and loses where cores are shared


@pytest.fixture(scope="session")
def loaded():
    return load_model()


@pytest.fixture(scope="session")
def running(loaded):
    with LocalService(model=loaded) as service:
        yield service


@pytest.fixture
def http(running):
    with httpx.Client(base_url=running.url, timeout=60) as client:
        yield client


@pytest.fixture
def make_samples():
    def make(lengths, seed=0, vocabulary=2560):
        rng = np.random.default_rng(seed)
        return [build_sample(rng.integers(3, vocabulary, length + 1), np.ones(length + 1)) for length in lengths]

    return make


@pytest.fixture
def open_session(http):
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(opened_session(http, **options))


@pytest.fixture(scope="module")
def session(running):
    """One full-weight session for a whole file, where a test changes nothing that another looks at."""
    with httpx.Client(base_url=running.url, timeout=60) as client, opened_session(client) as found:
        yield found


@pytest.fixture
def forward_body():
    def make(samples, **flags):
        return {"loss": {"type": "LOSS_TYPE_CROSS_ENTROPY"}, "samples": [item.to_wire() for item in samples], **flags}

    return make


@pytest.fixture(scope="module")
def breeder():
    """The process that mortal services are forked from."""
    with nursery() as process:
        yield process


@pytest.fixture
def mortal(breeder, tmp_path):
    """Make services of their own processes, which may be killed; what is left is."""
    made = []

    def make(name):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        service = MortalService(breeder, port, tmp_path / name)
        service.start()
        service.wait_until_up()
        made.append(service)
        return service

    yield make
    for service in made:
        service.kill()
