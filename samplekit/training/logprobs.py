"""How likely a model finds the target of every position.

Samples are padded on the right and never masked: under causal attention nothing that stands behind a position can
reach it, so a padded batch gives the numbers of each sample alone.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch and transformers annotate only part of what is used here)

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from samplekit.errors import LossInputError, SampleError
from samplekit.sample.kinds import describe_kind
from samplekit.training.chunks import refuse_logits, refuse_temperature, rows_logprobs
from samplekit.training.ranges import refuse_uncountable
from samplekit.training.rows import refuse_others

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from samplekit.sample import Sample
    from samplekit.sample.arrays import IntArray


def target_logprobs(
    model: torch.nn.Module, samples: Sequence[Sample], *, temperature: float = 1.0, batch_tokens: int = 8192
) -> list[torch.Tensor]:
    """Compute the logprob that the model gives to each target token.

    Gradients flow where autograd is on; wrap the call in ``torch.no_grad()`` to score only. The model stays in the mode
    it is in: call ``model.eval()`` first where dropout must not act. Beyond the logits, less than a tenth of their
    memory is taken (see `gather_logprobs`).

    Args:
        model: a causal language model: called with ``input_ids`` (B, T), gives ``.logits`` (B, T, V).
        samples: each with ``target_tokens``; lengths T_i may differ.
        temperature: logits are divided by it; finite, above 0.
        batch_tokens: most positions, padding included, that one forward pass holds; 1 or more.

    Returns:
        One (T_i,) tensor a sample, in nats, in the order given; float64 where the logits are, else float32.

    Raises:
        LossInputError: a sample has no target_tokens.
        SampleError: temperature is not a finite number above 0; batch_tokens is no whole number of 1 or more; samples
            holds something else than Samples, or an id that the model does not know; model is no torch.nn.Module, or
            gives something else than one logit for every id at every position read.
    """
    refuse_temperature(temperature, "target_logprobs")
    refuse_uncountable("batch_tokens", batch_tokens, "8192 is common")
    if not isinstance(model, torch.nn.Module):
        raise SampleError(f"model is {describe_kind(model)}, expected a torch.nn.Module: load it first")
    refuse_others(samples)
    inputs = [sample.model_input.tokens for sample in samples]
    _refuse_unknown_ids(model, inputs)
    targets = [targets_of(sample, f"samples[{index}]") for index, sample in enumerate(samples)]
    found: dict[int, torch.Tensor] = {}
    for rows in plan_rows([len(tokens) for tokens in inputs], batch_tokens):
        batch = batch_logprobs(model, [inputs[row] for row in rows], [targets[row] for row in rows], temperature)
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
    wanted: Sequence[npt.NDArray[np.bool_]] | None = None,
) -> list[torch.Tensor]:
    """Compute the logprobs of one padded batch in a single forward pass.

    The output head, the dearest layer of a small model, reads the wanted positions only.

    Args:
        model: as in `target_logprobs`.
        inputs: tokens read, int64 (T_i,) each.
        targets: tokens predicted, of the same lengths.
        temperature: logits are divided by it.
        wanted: which positions are wanted, (T_i,) each; the others read 0.0. All of them where None.

    Returns:
        One (T_i,) tensor a row.
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
        read_tokens = pad_right(inputs, device)
        with _head_reading(model, index, read_tokens.shape):
            logits = _raw_logits(_called(model, read_tokens))  # (1, N, V), or (B, T, V) without a head
        read = None if logits.shape[:2] == (1, len(places)) else index
        if read is not None:
            _refuse_other_positions("logits", logits, read_tokens.shape)
        wanted_targets = pad_right(targets, device).reshape(-1)[index]
        flat = rows_logprobs(logits.reshape(-1, logits.shape[-1]), read, wanted_targets, temperature)
    else:
        flat = torch.zeros(0, device=device)
    filled = flat.new_zeros(len(inputs) * longest).scatter(0, index, flat)
    return [filled[row * longest : row * longest + len(tokens)] for row, tokens in enumerate(inputs)]


def _device_of(model: torch.nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def _refuse_unknown_ids(model: torch.nn.Module, inputs: Sequence[IntArray]) -> None:
    """Refuse an id that the model's embedding has no row of, where the model says which layer that is."""
    find: Any = getattr(model, "get_input_embeddings", None)
    size: object = getattr(find() if find is not None else None, "num_embeddings", None)
    if not isinstance(size, int):
        return
    for index, tokens in enumerate(inputs):
        if tokens.max() >= size:
            place = int(tokens.argmax())
            raise SampleError(
                f"samples[{index}].model_input holds {tokens[place]} at position {place}, expected an id of 0 to "
                f"{size - 1}: use the model's own tokenizer"
            )


def _called(model: torch.nn.Module, tokens: torch.Tensor) -> Any:  # noqa: ANN401 - whatever the model gives
    try:
        return model(input_ids=tokens)
    except IndexError as error:  # an embedding that the model does not name
        raise SampleError(
            f"the model cannot read a batch whose largest id is {int(tokens.max())} ({error}), expected ids of its "
            "vocabulary: use the model's own tokenizer"
        ) from error


def _refuse_other_positions(what: str, given: torch.Tensor, read: torch.Size) -> None:
    """Refuse values (B, T, ...) of other positions than those read: shifted by one, they look as good."""
    if given.shape[:-1] not in (read, (read.numel(),)):
        raise SampleError(
            f"{what} of the model have shape {tuple(given.shape)}, input_ids have shape {tuple(read)}, expected one "
            "row for every position read: cut off what the model puts before or after them"
        )


@contextlib.contextmanager
def _head_reading(model: torch.nn.Module, index: torch.Tensor, read: torch.Size) -> Generator[None]:
    """Let the output head of a transformers model read only some of the B * T positions.

    The head's input is cut, not its output, so whatever the model does to logits afterwards (scaling, capping) stays.
    """
    find: Any = getattr(model, "get_output_embeddings", None)
    head = find() if find is not None else None
    if not isinstance(head, torch.nn.Module):
        yield
        return

    def select(_head: torch.nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, *rest = given  # (B, T, H)
        _refuse_other_positions("inputs to the output head", hidden, read)
        return (hidden.reshape(-1, hidden.shape[-1])[index].unsqueeze(0), *rest)

    handle = head.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


def pad_right(rows: Sequence[IntArray], device: torch.device) -> torch.Tensor:
    """Stack rows of token ids, the shorter ones filled up with id 0: int64 (B, longest)."""
    filled = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for row, tokens in enumerate(rows):
        filled[row, : len(tokens)] = tokens
    return torch.from_numpy(filled).to(device)


def logits_of(output: Any) -> torch.Tensor:  # noqa: ANN401 - a transformers output, or the logits themselves
    """Give a model's logits (B, T, V) in float32, or float64 where the model computes in it."""
    logits = _raw_logits(output)
    return logits if logits.dtype == torch.float64 else logits.float()


def _raw_logits(output: Any) -> torch.Tensor:  # noqa: ANN401 - as logits_of
    logits: object = getattr(output, "logits", output)
    if not isinstance(logits, torch.Tensor):
        raise SampleError(f"model gives {describe_kind(logits)}, expected logits or an output with .logits: wrap it")
    refuse_logits(logits)
    return logits
