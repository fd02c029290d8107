"""How likely a model finds the target of every position.

Samples are padded on the right and never masked: under causal attention nothing that stands behind a position can
reach it, so a padded batch gives the numbers of each sample alone.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from samplekit.errors import LossInputError, SampleError
from samplekit.sample.kinds import describe_kind
from samplekit.training.chunks import refuse_temperature, rows_logprobs
from samplekit.training.head import logits_at
from samplekit.training.ranges import refuse_uncountable
from samplekit.training.readable import refuse_unreadable
from samplekit.training.rows import refuse_not_finite, refuse_others

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samplekit.sample import Sample
    from samplekit.sample.arrays import IntArray
    from samplekit.training.rows import BoolArray


def target_logprobs(
    model: torch.nn.Module, samples: Sequence[Sample], *, temperature: float = 1.0, batch_tokens: int = 8192
) -> list[torch.Tensor]:
    """Compute the logprob that the model gives to each target token.

    Gradients flow where autograd is on; wrap the call in ``torch.no_grad()`` to score only. The model stays in the mode
    it is in: call ``model.eval()`` first where dropout must not act. Beyond the logits, less than a tenth of their
    memory is taken (see `gather_logprobs`). Where a sample does not train, a logprob that is NaN or infinite
    is given as it is: no loss reads it.

    Args:
        model: a causal language model: called with ``input_ids`` (B, T), gives ``.logits`` (B, T, V). Where it names
            its output head (``get_output_embeddings``), the head reads the positions of samples without their padding;
            a model that goes on position by position after its head (a gate), which fails on those, is called again
            and read whole, as is one that calls its head by keyword.
        samples: each with ``target_tokens``; lengths T_i may differ.
        temperature: logits are divided by it; finite, above 0.
        batch_tokens: most positions, padding included, that one forward pass holds; 1 or more.

    Returns:
        One (T_i,) tensor a sample, in nats, in the order given; float64 where the logits are, else float32.

    Raises:
        LossInputError: a sample has no target_tokens.
        SampleError: temperature is not a finite number above 0; batch_tokens is no whole number of 1 or more; samples
            holds something else than Samples, one longer than the model's positions (``max_position_embeddings`` of its
            config, times the factor of rope scaling), or an id that the model does not know; model is no
            torch.nn.Module, has no weights yet, or gives something else than one logit for every id at every position
            read; or a logprob is NaN or infinite where its sample trains. Messages name samples[i] and the position.
    """
    refuse_temperature(temperature, "target_logprobs")
    refuse_uncountable("batch_tokens", batch_tokens, "8192 is common")
    if not isinstance(model, torch.nn.Module):
        raise SampleError(f"model is {describe_kind(model)}, expected a torch.nn.Module: load it first")
    refuse_others(samples)
    inputs = [sample.model_input.tokens for sample in samples]
    refuse_unreadable(model, inputs)
    targets = [targets_of(sample, f"samples[{index}]") for index, sample in enumerate(samples)]
    found: dict[int, torch.Tensor] = {}
    for rows in plan_rows([len(tokens) for tokens in inputs], batch_tokens):
        batch = batch_logprobs(
            model, [inputs[row] for row in rows], [targets[row] for row in rows], temperature, numbers=rows
        )
        _refuse_broken(batch, samples, rows)
        found.update(zip(rows, batch, strict=True))
    return [found[index] for index in range(len(samples))]


def targets_of(sample: Sample, label: str) -> IntArray:
    """Give the target tokens of a sample, int64 (T,).

    Raises:
        LossInputError: it has none; the message starts with ``label``.
    """
    tensor = sample.loss_fn_inputs.get("target_tokens")
    if tensor is None:
        raise LossInputError(f"{label}.loss_fn_inputs holds no 'target_tokens': build it with samplekit.build_sample")
    return tensor.data


def plan_rows(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Group samples of like length, longest first, so that a padded group holds at most ``batch_tokens`` positions.

    Args:
        lengths: positions of every sample.
        batch_tokens: the limit; a longer sample makes a group of its own.

    Returns:
        Indices into ``lengths``, each exactly once.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= batch_tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def batch_logprobs(
    model: torch.nn.Module,
    inputs: Sequence[IntArray],
    targets: Sequence[IntArray],
    temperature: float = 1.0,
    wanted: Sequence[BoolArray] | None = None,
    numbers: Sequence[int] | None = None,
) -> list[torch.Tensor]:
    """Compute the logprobs of one padded batch in a single forward pass, by the head at the wanted positions only.

    Args:
        model: as in `target_logprobs`.
        inputs: tokens read, int64 (T_i,) each.
        targets: tokens predicted, of the same lengths.
        temperature: logits are divided by it.
        wanted: which positions are wanted, (T_i,) each; the others read 0.0. All of them where None.
        numbers: which samples these are, for errors; 0, 1 and so on where None.

    Returns:
        One (T_i,) tensor a row.

    Raises:
        SampleError: a target is no id of the model's, or the model gives no logits of the positions read.
    """
    device = _device_of(model)
    longest = max(map(len, inputs))
    places = np.concatenate(
        [
            row * longest + (np.arange(len(tokens)) if wanted is None else np.flatnonzero(wanted[row]))
            for row, tokens in enumerate(inputs)
        ]
    )  # (N,) into B * T
    index = torch.from_numpy(places).to(device)
    if len(places):
        logits, read = logits_at(model, pad_right(inputs, device), index)
        named = range(len(targets)) if numbers is None else numbers
        _refuse_unknown_targets(logits.shape[-1], targets, wanted, named)
        wanted_targets = pad_right(targets, device).reshape(-1)[index]
        flat = rows_logprobs(logits, read, wanted_targets, temperature)
    else:
        flat = torch.zeros(0, device=device)
    filled = flat.new_zeros(len(inputs) * longest).scatter(0, index, flat)
    return [filled[row * longest : row * longest + len(tokens)] for row, tokens in enumerate(inputs)]


def _device_of(model: torch.nn.Module) -> torch.device:
    first = next((weight for weight in model.parameters() if not weight.is_meta), None)
    return torch.device("cpu") if first is None else first.device


def _refuse_unknown_targets(
    vocab_size: int, targets: Sequence[IntArray], wanted: Sequence[BoolArray] | None, numbers: Sequence[int]
) -> None:
    """Refuse a target that has no logit, where one is wanted."""
    for row, (number, tokens) in enumerate(zip(numbers, targets, strict=True)):
        unknown = (tokens < 0) | (tokens >= vocab_size)
        if wanted is not None:
            unknown &= wanted[row]
        if unknown.any():
            place = int(unknown.argmax())
            raise SampleError(
                f"samples[{number}].loss_fn_inputs['target_tokens'] holds {tokens[place]} at position {place}, "
                f"expected an id of 0 to {vocab_size - 1}, as the model has logits: use the model's own tokenizer"
            )


def _refuse_broken(found: Sequence[torch.Tensor], samples: Sequence[Sample], numbers: Sequence[int]) -> None:
    """Refuse logprobs that are NaN or infinite where their sample trains."""
    if bool(torch.isfinite(torch.cat([row.detach() for row in found])).all()):
        return
    for number, row in zip(numbers, found, strict=True):
        trained = samples[number].weights != 0
        refuse_not_finite(row.detach().cpu().numpy(), trained, f"the model's logprob of samples[{number}]")


def pad_right(rows: Sequence[IntArray], device: torch.device) -> torch.Tensor:
    """Stack rows of token ids, the shorter ones filled up with id 0: int64 (B, longest)."""
    filled = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for row, tokens in enumerate(rows):
        filled[row, : len(tokens)] = tokens
    return torch.from_numpy(filled).to(device)
