"""Completions, groups and episodes made up for tests; what they hold tells where it came from."""

from samplekit import Completion, Group, Step, Trajectory


def completion(tokens, *, reward=None, stop_reason="stop", logprob=-0.5, key=None):
    """A completion whose logprobs tell its tokens apart."""
    logprobs = [logprob - index / 64 for index in range(len(tokens))]
    return Completion(tokens, logprobs, reward=reward, stop_reason=stop_reason, routed_experts_key=key)


def group(rewards, *, prompt=(1, 2), id="g", lengths=None, stops=None):  # noqa: A002 - as Group calls it
    """A group in which completion k has tokens 10k + 10, 10k + 11, ..."""
    lengths = lengths or [2] * len(rewards)
    stops = stops or ["stop"] * len(rewards)
    made = [
        completion([10 * k + 10 + place for place in range(length)], reward=reward, stop_reason=stop)
        for k, (reward, length, stop) in enumerate(zip(rewards, lengths, stops, strict=True))
    ]
    return Group(list(prompt), made, id=id)


def episode(*steps, reward=None, group=None):
    """A trajectory of (prompt, completion tokens)."""
    return Trajectory(
        [Step(list(prompt), completion(list(tokens), logprob=-1.0 - number)) for number, (prompt, tokens) in enumerate(steps)],
        reward=reward, group=group,
    )  # fmt: skip


def read(sample, name):
    """A sample's array by name, as a list."""
    return sample.loss_fn_inputs[name].data.tolist()
