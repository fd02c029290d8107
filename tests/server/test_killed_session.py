"""kill -9 of the service under a samplekit session with operations in flight: it notices nothing but the time."""

import itertools
import random
import threading

import pytest

import samplekit as sk
from samplekit.client import Client

SETTINGS = {"lora_rank": 4, "lora_seed": 8, "lora_dropout": 0.2}
AHEAD = 5  # operations submitted before the first is collected


def calls_of(session, make_samples, steps):
    """Submit what a training loop does, one call at each next()."""
    for step in range(steps):
        for half in range(2):
            samples = make_samples([20, 33], 2 * step + half)
            yield session.forward_backward(samples, sk.CrossEntropy(), return_logprobs=True)
        yield session.optim_step(learning_rate=3e-3)
        if step % 2:
            yield session.weights_sync()
            yield session.generate([[5, 6, 7]], max_tokens=4, seed=3)
    yield session.save_inference_checkpoint()


def shown(result):
    """What must be equal, without ids and times."""
    if isinstance(result, list):
        return [[(item.tokens.tolist(), item.logprobs.tolist()) for item in group.completions] for group in result]
    if isinstance(result, int):
        return result
    if hasattr(result, "logprobs"):
        return result.loss, [array.tolist() for array in result.logprobs]
    return result.step


def run(service, folder, make_samples, steps, between=lambda number: None):
    """Train through a session, operations in flight; give every result and the bytes of the final weights."""
    results, waiting = [], []
    with Client(base_url=service.url, timeout=20, max_retries=50) as client, client.session(**SETTINGS) as session:
        for number, operation in enumerate(calls_of(session, make_samples, steps)):
            waiting.append(operation)
            between(number)
            if len(waiting) > AHEAD:
                results.append(waiting.pop(0).result())
        results += [operation.result() for operation in waiting]
        files = client.download(results[-1].id, folder)
        (entry,) = client.sessions(resources_id=session.resources_id)
        assert entry.step == steps  # each step was applied once
    weights = {path.name: path.read_bytes() for path in files if path.suffix == ".safetensors"}
    return [shown(result) for result in results], weights


def test_a_session_goes_through_two_kills_to_the_same_weights(mortal, make_samples, tmp_path):
    undisturbed = run(mortal("whole"), tmp_path / "a", make_samples, 3)
    service = mortal("killed")

    def between(number):
        if number in {4, 8}:
            service.kill()
            threading.Timer(0.05, service.start).start()  # submitting and asking meet nobody for a while

    assert run(service, tmp_path / "b", make_samples, 3, between) == undisturbed
    assert service.lives == 3
    assert undisturbed[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_long_session_killed_at_random_points_ends_with_the_same_weights(mortal, make_samples, tmp_path, seed):
    undisturbed = run(mortal("whole"), tmp_path / "a", make_samples, 30)
    service, done = mortal("killed"), threading.Event()
    draws = random.Random(seed)
    pauses = (draws.uniform(0.1, 2.0) for _ in itertools.count())

    def reap():
        while not done.wait(next(pauses)):
            service.kill()
            service.start()
            service.wait_until_up()

    reaper = threading.Thread(target=reap)

    def between(number):
        if number == 0:  # opening a session has no key: a try whose answer is lost is not repeated but told of
            reaper.start()

    try:
        assert run(service, tmp_path / "b", make_samples, 30, between) == undisturbed
    finally:
        done.set()
        reaper.join()
    assert service.lives > 3
