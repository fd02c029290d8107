"""Batches of a trainer, side by side: the contenders of the rows "collate".

All contenders of a row give the same input_ids, labels, position_ids and cu_seq_lens (or, padded, input_ids, labels and
attention_mask) of the same items. TRL's also gives seq_idx, ours use_cache. The rows that are held to a goal give each
what it keeps: ours arrays, as records and samples are, the peers lists, as a dataset gives its rows. The others give
all the same form and show what the collators alone cost.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.meters import cpu_time
from benchmarks.planning import WIDTH, many_short
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer, require

FLATTENING, SEQ2SEQ, TRL, TO_TRAINING = "HF flattening", "HF seq2seq", "TRL", "to_training"
PROMPT = 100  # tokens that do not train, at the start of each item
GOAL = 1e9 / 50e6  # nanoseconds a token, at 50 million tokens a second
_FLAT = ("input_ids", "labels", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k")
_PADDED = ("input_ids", "labels", "attention_mask")
Items = list[dict[str, Any]]
Form = Callable[[Any], Any]


def flat_row(key: str, what: str, form: Form, *, own: Form | None = None) -> Row:
    """Define a row that lays half as many items as the size's samples end to end.

    Args:
        key: of the row.
        what: the form of the items' columns, in words.
        form: gives a column that form.
        own: gives a column the form that ours gets; the row is held to its goals where this is given.
    """
    loads = {OURS: _ours, FLATTENING: _flattening, TRL: _trl, FLOOR: _bare}
    better, goal = (10, GOAL) if own else (None, None)
    gates = (Gate(FLATTENING, better), Gate(TRL, better), Gate(FLOOR, sense="floor"))
    readings = [
        Reading("CPU time", cpu_time, gates),
        Reading("CPU time of a token", _nanoseconds_a_token, (Gate(OURS, goal, "value", "ns"),), only=(OURS,)),
    ]
    return Row(key, f"collate documents end to end, {what}", partial(_prepare, loads, form, _flat, own), readings)


def padded_row(key: str, what: str, form: Form, *, own: Form | None = None) -> Row:
    """Define a row that pads half as many items as the size's samples to one width; arguments as `flat_row`."""
    loads = {OURS: partial(_ours, packed=False), SEQ2SEQ: _seq2seq, TRL: partial(_trl, packed=False)}
    better = 10 if own else None
    readings = [Reading("CPU time", cpu_time, (Gate(SEQ2SEQ, better), Gate(TRL, better)))]
    return Row(key, f"collate documents padded, {what}", partial(_prepare, loads, form, _padded, own), readings)


def rows_row(key: str) -> Row:
    """Define a row that collates packed rows, which only ours makes: shown beside joining their arrays alone."""
    loads = {OURS: _ours_rows, TO_TRAINING: _to_training, FLOOR: _rows_joined_alone}
    readings = [
        Reading("CPU time", cpu_time, (Gate(TO_TRAINING, sense="floor"), Gate(FLOOR, sense="floor"))),
        Reading("CPU time of a token", _nanoseconds_a_token, (Gate(OURS, GOAL, "value", "ns"),), only=(OURS,)),
    ]
    return Row(key, f"collate packed rows of {WIDTH:,}", partial(_prepare, loads, np.asarray, _count, None), readings)


def as_list(values: Any) -> list[int]:
    """Give a column as a dataset gives it."""
    return values.tolist()


def _prepare(
    loads: Mapping[str, Callable[[Items], Work]],
    form: Form,
    normal: Callable[[Any], Any],
    own: Form | None,
    size: Size,
) -> Case:
    items = _items(max(2, size.num_samples // 2), form)
    kept = items if own is None else _items(len(items), own)
    given = {name: kept if name in (OURS, FLOOR) else items for name in loads}
    contenders, skipped = offer({name: partial(load, given[name]) for name, load in loads.items()})
    return Case(contenders, lambda _name, found: normal(found), skipped)


def _items(count: int, form: Form) -> Items:
    """Make items whose columns share no memory, as those of a dataset."""
    generator = np.random.default_rng(0)
    items: Items = []
    for length in many_short(count).tolist():
        tokens = generator.integers(3, 100_000, length)
        labels = np.where(np.arange(length) < PROMPT, -100, tokens)
        items.append({"input_ids": form(tokens), "labels": form(labels)})
    return items


def _nanoseconds_a_token(contenders: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Measure CPU time by the tokens of the batch."""
    count = contenders[OURS]()["input_ids"].numel()
    found = cpu_time(contenders, rounds)
    return {name: [1e9 * value / count for value in values] for name, values in found.items()}


def _flat(found: Any) -> Any:
    return tuple(found[name].reshape(-1).tolist() for name in _FLAT)


def _padded(found: Any) -> Any:
    return tuple(found[name].tolist() for name in _PADDED)


def _count(found: Any) -> int:
    return int(found["input_ids"].size if isinstance(found["input_ids"], np.ndarray) else found["input_ids"].numel())


def _ours(items: Items, *, packed: bool = True) -> Work:
    from samplekit.training import PackingCollator

    return partial(PackingCollator(WIDTH, pad_id=0, packed=packed), items)


def _flattening(items: Items) -> Work:
    require("transformers")
    from transformers import DataCollatorWithFlattening

    return partial(DataCollatorWithFlattening(return_flash_attn_kwargs=True), items)


def _seq2seq(items: Items) -> Work:
    require("transformers")
    from transformers import DataCollatorForSeq2Seq

    from samplekit import ChatTemplate

    tokenizer = ChatTemplate.load("samplekit/tiny").tokenizer
    tokenizer.pad_token_id = 0
    return partial(DataCollatorForSeq2Seq(tokenizer), items)


def _trl(items: Items, *, packed: bool = True) -> Work:
    require("trl")
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    return partial(DataCollatorForLanguageModeling(pad_token_id=0, padding_free=packed), items)


def _bare(items: Items) -> Work:
    """Read and join columns and look at nothing: what no collator can leave out."""
    import torch

    def joined(name: str) -> Any:
        columns = [item[name] for item in items]
        if not isinstance(columns[0], list):
            return np.concatenate(columns)
        read = array("q")
        for column in columns:
            read.fromlist(column)
        return np.frombuffer(read, dtype=np.int64)

    def work() -> dict[str, Any]:
        ends = np.cumsum([0, *(len(item["input_ids"]) for item in items)])
        labels = joined("labels")
        labels[ends[: len(items)]] = -100
        counted = np.concatenate([np.arange(len(item["input_ids"])) for item in items])
        cu_seqlens = torch.from_numpy(ends.astype(np.int32))
        columns = (joined("input_ids"), labels, counted)
        return dict(zip(_FLAT, [*map(torch.from_numpy, columns), cu_seqlens, cu_seqlens], strict=True))

    return work


def _packed(items: Items) -> Any:
    from samplekit import pack

    return pack(items, WIDTH, pad_id=0)


def _ours_rows(items: Items) -> Work:
    from samplekit.training import PackingCollator

    return partial(PackingCollator(WIDTH, pad_id=0), _packed(items))


def _to_training(items: Items) -> Work:
    """Give the same rows without labels shifted, so that all contenders give as many ids."""
    from samplekit import SampleBatch

    batch = SampleBatch(_packed(items))
    return lambda: batch.to_training(return_cu_seqlens=True, return_padding_mask=True)


def _rows_joined_alone(items: Items) -> Work:
    import torch

    rows = _packed(items)

    def work() -> dict[str, Any]:
        columns = {"input_ids": [row.tokens for row in rows], "loss_mask": [row.loss_mask for row in rows]}
        columns["position_ids"] = [row.per_token["positions"] for row in rows]
        return {name: torch.from_numpy(np.concatenate(values)) for name, values in columns.items()}

    return work
