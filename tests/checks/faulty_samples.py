"""One wire mapping for every code a finding may carry, right but for that one fault."""

import copy

import samplekit as sk

NAN = float("nan")


def right_sample():
    """A sample in the service's spelling that gives no finding under any loss."""
    logprobs = [0.0, -0.5, -0.25, -1.0]
    sample = sk.build_sample([5, 6, 7, 8], [0, 0, 1, 1], advantages=0.5, logprobs=logprobs)
    return sample.to_wire()


def changed(path, value):
    """A right sample with one field replaced, or, where the value is None, taken out."""
    sample = right_sample()
    place = sample
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = copy.deepcopy(value)
    return sample


def with_input(name, data, dtype="float32"):
    return changed(("loss_fn_inputs", name), {"data": data, "dtype": dtype})


CHUNK = ("model_input", "chunks", 0)
FAULTS = {
    "invalid_field": lambda: changed(("weight",), 1),
    "empty": lambda: with_input("logprobs", []),
    "shape": lambda: with_input("logprobs", [[0.0, -1.0, -1.0]]),
    "token_id": lambda: changed((*CHUNK, "encoded_text", "tokens"), [5, "6", 7]),
    "not_a_number": lambda: with_input("advantages", [0.0, None, 0.5]),
    "not_finite": lambda: with_input("logprobs", [0.0, -1.0, NAN]),
    "length_mismatch": lambda: with_input("logprobs", [0.0, -1.0]),
    "dtype": lambda: with_input("logprobs", [0, 0, 0], "int32"),
    "weights_and_mask": lambda: with_input("mask", [0, 1, 1], "int64"),
    "missing_input": lambda: changed(("loss_fn_inputs", "target_tokens"), None),
    "nothing_trained": lambda: changed(
        ("loss_fn_inputs",), {**right_sample()["loss_fn_inputs"], "weights": {"data": [0.0] * 3, "dtype": "float32"},
                              "advantages": {"data": [0.0] * 3, "dtype": "float32"}},
    ),
    "target_not_next": lambda: with_input("target_tokens", [6, 9, 8], "int64"),
    "positive_logprob": lambda: with_input("logprobs", [0.0, 0.5, -1.0]),
    "vocabulary": lambda: with_input("target_tokens", [6, 7, 100], "int64"),
    "too_long": lambda: sk.build_sample(range(5, 13), [0, 1] * 4, advantages=1.0, logprobs=[-1.0] * 8).to_wire(),
    "unknown_input": lambda: with_input("entropy", [0.5, 0.5, 0.5]),
    "unused_input": lambda: with_input("reference_logprobs", [0.0, -1.0, -1.0]),
    "negative_weight": lambda: with_input("weights", [0.0, -1.0, 1.0]),
    "fractional_weight": lambda: with_input("weights", [0.0, 0.5, 1.0]),
    "advantage_outside_mask": lambda: with_input("advantages", [0.5, 0.5, 0.5]),
    "no_mask": lambda: changed(("loss_fn_inputs", "weights"), None),
    "zero_logprobs": lambda: with_input("logprobs", [0.0, 0.0, 0.0]),
}  # fmt: skip
"""Every code that one sample can be at fault for."""

OPTIONS = {
    "unused_input": {"loss": sk.GRPO()},
    "negative_weight": {"loss": None},
    "fractional_weight": {"loss": sk.PPO()},
    "no_mask": {"loss": sk.DRO(beta=0.1)},
    "vocabulary": {"vocab_size": 100},
    "too_long": {"max_length": 7},
}
"""What check must be told, besides the samples, for a code to be found."""
