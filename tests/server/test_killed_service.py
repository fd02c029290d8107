"""kill -9 at any moment: what was accepted is done once, what was done stays, and weights come out the same."""

import itertools
import random
import threading
import time

import httpx
import pytest

from samplekit.wire import names as wire

SYNC = {"weight_sync_type": "WEIGHT_SYNC_TYPE_SYNCHRONOUS"}
ADAM = {"adam_params": {"learning_rate": 3e-3}}
PROMPT = {"chunks": [{"encoded_text": {"tokens": [5, 6, 7]}}]}
DRAW = {"model_inputs": [PROMPT], "sampling_params": {"max_tokens": 4, "seed": 3}}


def plan(forward_body, make_samples, steps):
    """Two passes, a step, now and then a sync and a draw: (kind, body) each."""
    operations = []
    for step in range(steps):
        bodies = [forward_body(make_samples([20, 33], 2 * step + half)) for half in range(2)]
        operations += [("forward-backward", body) for body in bodies]
        if step % 3 == 1:
            operations.append(("weights-sync", SYNC))
        operations.append(("optim-step", ADAM))
        if step % 2:
            operations += [("sample", DRAW), ("weights-sync", SYNC)]
    return [*operations, ("training-checkpoint", {}), ("inference-checkpoint", {})]


def asked(http, method, path, **options):
    """Ask until somebody answers."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return http.request(method, path, **options)
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def run(service, operations, lora, between=lambda number: None, opened=lambda: None):
    """Open a session and submit up to 5 ahead, under fixed keys; give the outputs, and the final weights' bytes."""
    with httpx.Client(base_url=service.url, timeout=20) as http:
        resources = {"base_model": "samplekit/tiny", "lora_enabled": lora is not None}
        identifier = http.post(wire.CREATE_RESOURCES.path(), json=resources).json()["id"]
        body = {"model_resources_id": identifier, **({"lora_config": lora} if lora else {})}
        session = http.post(wire.CREATE_SESSION.path(), json=body).json()["id"]
        opened()  # calls without a key, such as those that create, are not repeated
        ids, outputs = {}, []

        def submitted(number):
            kind, body = operations[number]
            path = wire.SUBMIT_OPERATION.path(session_id=session, kind=kind)
            answer = asked(http, "POST", path, json=body, headers={"Idempotency-Key": f"key-{number}"})
            assert answer.status_code == 200, answer.text
            return answer.json()["id"]

        def output(number):
            path = wire.GET_OPERATION.path(session_id=session, kind=operations[number][0], operation_id=ids[number])
            while True:
                answer = asked(http, "GET", path)
                assert answer.status_code == 200, answer.text  # accepted once, known for ever
                shown = answer.json()
                if shown["status"] in wire.TERMINAL_OPERATIONS:
                    assert shown["status"] == wire.OperationStatus.COMPLETED, shown
                    return shown["output"]

        for number in range(len(operations)):
            for ahead in range(number, min(number + 5, len(operations))):
                ids.setdefault(ahead, None)
                ids[ahead] = ids[ahead] or submitted(ahead)
            between(number)
            outputs.append(output(number))
            assert submitted(number) == ids[number]  # the key is remembered
        # every outcome is still the one that was shown
        assert [output(number) for number in range(len(operations))] == outputs
        variant = "CHECKPOINT_VARIANT_MERGED" if lora is None else "CHECKPOINT_VARIANT_ADAPTER"
        path = wire.DOWNLOAD_CHECKPOINT.path(checkpoint_id=outputs[-1]["checkpoint"]["id"])
        listed = asked(http, "GET", path, params={"variant": variant}).json()["data"]
        weights = {item["filename"]: asked(http, "GET", item["url"]).content
                   for item in listed if item["filename"].endswith(".safetensors")}  # fmt: skip
        shown = asked(http, "GET", wire.GET_SESSION.path(session_id=session)).json()
        saved = [output["checkpoint"]["id"] for output in outputs[-2:]]
        own = [item["id"] for kind in ("training", "inference") for item in shown[f"{kind}_checkpoints"]]
        listed = asked(http, "GET", wire.LIST_CHECKPOINTS.path(), params={"session_id": session}).json()["data"]
        assert own == [item["id"] for item in listed] == saved  # none is saved twice
        return [without_times(item) for item in outputs], weights, shown["step"]


def without_times(output):
    return {name: value["step"] if name == "checkpoint" else value for name, value in output.items()}


def killed_run(service, operations, lora, pauses):
    """Run while another thread kills and restarts the service after each pause."""
    done = threading.Event()

    def reap():
        for pause in pauses:
            if done.wait(pause):
                return
            service.kill()
            service.start()
            service.wait_until_up()

    thread = threading.Thread(target=reap)
    try:
        return run(service, operations, lora, opened=thread.start)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("lora", [{"rank": 4, "dropout": 0.2, "seed": 8}, None])
def test_a_run_that_is_killed_ends_as_an_undisturbed_one(mortal, forward_body, make_samples, lora):
    operations = plan(forward_body, make_samples, 4)
    undisturbed = run(mortal("whole"), operations, lora)
    service = mortal("killed")
    draws = random.Random(11)

    def between(number):
        if number % 6 == 4:
            time.sleep(draws.uniform(0, 0.05))
            service.kill()
            service.start()

    assert run(service, operations, lora, between) == undisturbed
    assert service.lives > 3
    assert undisturbed[2] == "4"
    assert undisturbed[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lora", [{"rank": 8, "dropout": 0.1}, None])
def test_a_long_run_killed_at_random_points_ends_as_an_undisturbed_one(mortal, forward_body, make_samples, lora, seed):
    operations = plan(forward_body, make_samples, 40)
    undisturbed = run(mortal("whole"), operations, lora)
    draws = random.Random(seed)
    pauses = (draws.uniform(0.05, 1.5) for _ in itertools.count())
    service = mortal("killed")
    assert killed_run(service, operations, lora, pauses) == undisturbed
    assert service.lives > 5
