"""Every loss once more, position by position in plain Python floats, straight from the published formulas.

Shares nothing with `samplekit.training`: nothing is flat, masked by zeros or vectorised.
"""

import math


def clamp(value, low, high):
    return max(low, min(high, value))


def kl_estimate(d, estimator):
    return {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - d - 1}[estimator]


def read(sample):
    """The inputs of one sample as lists of floats, and which positions train."""
    inputs = {name: tensor.data.tolist() for name, tensor in sample.loss_fn_inputs.items()}
    weights = inputs.get("weights", inputs.get("mask", [1.0] * sample.length))
    return inputs, weights


def surrogate(r, a, loss):
    return -min(r * a, clamp(r, loss.clip_low, loss.clip_high) * a)


def position_term(loss, lp, q, a, w, ref, r, kl):
    """What one trained position adds."""
    kind = type(loss).__name__
    if kind == "CrossEntropy":
        return -w * lp
    if kind == "ImportanceSampling":
        return -r * a
    if kind == "PPO":
        return surrogate(r, a, loss)
    if kind == "GRPO":
        return surrogate(r, a, loss) + (loss.beta * kl_estimate(ref - lp, kl) if loss.beta else 0.0)
    if kind == "CISPO":
        return -clamp(r, loss.clip_low, loss.clip_high) * a * lp
    if kind == "DRO":
        return -(lp * a - loss.beta / 2 * (lp - q) ** 2)
    assert kind == "DPPO"
    moved = math.exp(lp) - math.exp(q)
    dropped = moved > loss.delta_high if a > 0 else a < 0 and -moved > loss.delta_low
    return 0.0 if dropped else -r * a


def sample_terms(loss, logprobs, sample, kl="k3"):
    """(position, term) for every trained position of one sample; logprobs is a list of floats."""
    inputs, weights = read(sample)
    trained = [place for place, weight in enumerate(weights) if weight != 0]
    zeros = [0.0] * sample.length
    q, a, ref = (inputs.get(name, zeros) for name in ("logprobs", "advantages", "reference_logprobs"))
    sequence = sum(logprobs[place] - q[place] for place in trained) / max(len(trained), 1)
    terms = []
    for place in trained:
        log_ratio = sequence if getattr(loss, "ratio", "token") == "sequence" else logprobs[place] - q[place]
        terms.append(
            position_term(
                loss, logprobs[place], q[place], a[place], weights[place], ref[place], math.exp(log_ratio), kl
            )
        )
    return list(zip(trained, terms, strict=True))


def loss_value(loss, rows, samples, *, horizon=None, normalizer=None, sequence_mean="means", kl="k3"):
    """The number that a loss gives for a batch; rows are lists of floats."""
    terms = [
        [term for _, term in sample_terms(loss, row, sample, kl)] for row, sample in zip(rows, samples, strict=True)
    ]
    aggregation = getattr(loss, "aggregation", "fixed_horizon")
    if aggregation == "sequence_mean":
        training = [item for item in terms if item]
        each = [sum(item) / (len(item) if sequence_mean == "means" else 1) for item in training]
        return sum(each) / (normalizer or len(training))
    total = sum(map(sum, terms))
    if normalizer is not None:
        return total / normalizer
    if aggregation == "token_mean":
        return total / sum(map(len, terms))
    return total if horizon is None else total / (horizon * len(samples))


def metric_values(loss, rows, samples, kl="k3"):
    """The metrics of a batch in which every sample has every input; rows are lists of floats."""
    kind, found, count = type(loss).__name__, {}, 0

    def note(name, value):
        found[name] = found.get(name, 0.0) + value

    for row, sample in zip(rows, samples, strict=True):
        inputs, weights = read(sample)
        trained = [place for place, weight in enumerate(weights) if weight != 0]
        count += len(trained)
        whole = sum(row[place] - inputs["logprobs"][place] for place in trained) / max(len(trained), 1)
        for place in trained if kind != "CrossEntropy" else ():
            lp, q, a, ref = row[place], *(inputs[n][place] for n in ("logprobs", "advantages", "reference_logprobs"))
            r = math.exp(whole if getattr(loss, "ratio", "token") == "sequence" else lp - q)
            note("loss/ratio/mean", r)
            note("loss/kl_policy/mean", kl_estimate(lp - q, kl))
            if kind == "GRPO":
                note("loss/kl_ref/mean", kl_estimate(ref - lp, kl))
            if kind == "DPPO":
                moved = math.exp(lp) - math.exp(q)
                note("loss/clip/high_fraction", a > 0 and moved > loss.delta_high)
                note("loss/clip/low_fraction", a < 0 and -moved > loss.delta_low)
            elif kind in ("PPO", "GRPO", "CISPO"):
                note("loss/clip/high_fraction", a > 0 and r > loss.clip_high)
                note("loss/clip/low_fraction", a < 0 and r < loss.clip_low)
    return {name: value / count for name, value in found.items()}
