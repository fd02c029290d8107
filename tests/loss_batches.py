"""Batches of random samples for the losses, and the losses that are tried on them."""

import numpy as np
import torch

import samplekit as sk

AGGREGATIONS = ("fixed_horizon", "token_mean", "sequence_mean")
LOSSES = {
    "cross_entropy": sk.CrossEntropy(),
    "importance_sampling": sk.ImportanceSampling(),
    "ppo": sk.PPO(),
    "ppo, other bounds": sk.PPO(clip_low=0.9, clip_high=1.05),
    "cispo": sk.CISPO(),
    "cispo, both bounds": sk.CISPO(clip_low=0.8, clip_high=1.1),
    "dppo": sk.DPPO(),
    "dppo, tight": sk.DPPO(delta_low=0.02, delta_high=0.03),
    "dro": sk.DRO(beta=0.3),
    **{
        f"grpo, {ratio}, {aggregation}, beta {beta}": sk.GRPO(beta=beta, aggregation=aggregation, ratio=ratio)
        for ratio in ("token", "sequence")
        for aggregation in AGGREGATIONS
        for beta in (0.0, 0.2)
    },
}


def random_batch(seed=0, lengths=(7, 1, 12, 30, 4), *, spread=0.3, mask="weights", one_advantage=False):
    """Samples with every input, and logprobs of a policy that lies `spread` nats around the sampler.

    Prompts come first; among what follows, about a fifth does not train either, as observations do not.
    """
    rng = np.random.default_rng(seed)
    samples, rows = [], []
    for length in lengths:
        trained = np.arange(length + 1) > length // 3
        trained &= rng.random(length + 1) > 0.2
        trained[-1] = True
        logprobs = -rng.exponential(1.0, length + 1)
        advantages = np.full(length + 1, rng.normal()) if one_advantage else rng.normal(size=length + 1)
        sample = sk.build_sample(
            rng.integers(3, 90, length + 1),
            trained,
            advantages=np.where(trained, advantages, 0),
            logprobs=logprobs,
            reference_logprobs=np.minimum(logprobs + rng.normal(0, spread, length + 1), 0),
        )
        samples.append(sample if mask == "weights" else renamed(sample, mask))
        rows.append(torch.tensor(sample.loss_fn_inputs["logprobs"].data + rng.normal(0, spread, length)).double())
    return rows, samples


def renamed(sample, mask):
    """The same sample with its weights called `mask`, or with none at all."""
    inputs = dict(sample.loss_fn_inputs)
    weights = inputs.pop("weights")
    return sk.Sample(sample.model_input, inputs if mask is None else {**inputs, mask: weights})


def replaced(sample, **arrays):
    """The same sample with other values of some inputs."""
    tensors = {name: sk.TensorData(values, "float32") for name, values in arrays.items()}
    return sk.Sample(sample.model_input, {**sample.loss_fn_inputs, **tensors})


def leaves(rows):
    return [row.clone().requires_grad_() for row in rows]


def hand_sample(weights, advantages=None, logprobs=None, reference_logprobs=None):
    """A sample of given shifted arrays, one value a position."""
    arrays = {"advantages": advantages, "logprobs": logprobs, "reference_logprobs": reference_logprobs}
    full = {name: [0.0, *values] for name, values in arrays.items() if values is not None}
    return sk.build_sample(range(3, 4 + len(weights)), [0, *weights], **full)
