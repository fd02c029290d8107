"""Faults met in the field (data/cases/open_cases.json): packing, truncation and shift-04 where rows are made, by id.

mask-04 is named by the task and not among the cases given: its class, an end token that is also the pad token, is tested
with the collator (tests/training/test_collator_inputs.py).
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import samplekit as sk
from samplekit.training import PackingCollator

CASES = {
    case["id"]: case for case in json.loads((Path(__file__).parents[1] / "data/cases/open_cases.json").read_text())
}
CHATS = {"truncation-06"}  # tests/chat/test_cases_from_the_field.py
SIDES = {"right": "truncate", "left": "truncate_left"}


def given(case_id):
    return CASES[case_id]["input"]


def right(case_id):
    return CASES[case_id]["right"]


def test_every_case_of_these_kinds_has_a_test():
    kinds = {case_id for case_id, case in CASES.items() if case["kind"] in ("packing", "truncation")}
    tested = re.findall(r"def test_([a-z]+)_(\d\d)_", Path(__file__).read_text())
    assert {"-".join(pair) for pair in tested} == (kinds - CHATS) | {"shift-04"}


def streamed(records, capacity, **options):
    packer = sk.StreamingPacker(capacity, pad_id=0, **options)
    return [row for record in records for row in packer.add(record)] + packer.flush()


@pytest.mark.parametrize("length", [5, 6, 8, 9, 400])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_packing_02_a_sample_longer_than_a_row_is_refused_or_left_out_whole(length, place):
    case, error = given("packing-02"), right("packing-02")["error"]
    capacity = case["capacity"]
    assert case["sample_lengths"] == [5, 2]
    lengths = [2, 2]
    lengths.insert(place, length)
    records = [[7] * size for size in lengths]
    for make in (lambda: sk.pack(records, capacity, pad_id=0), lambda: streamed(records, capacity)):
        with pytest.raises(ValueError, match="max_length=4") as caught:
            make()
        words = [
            word.replace("sample 0", f"sample {place}").replace("5", str(length))
            for word in error["message_must_mention"]
        ]
        assert all(re.search(rf"(?<!\w){word}(?!\w)", str(caught.value)) for word in words)
    rows = sk.pack(records, capacity, pad_id=0, oversize="drop")
    assert (rows.plan.num_dropped_items, rows.plan.num_dropped) == (1, length)
    assert [row.seq_lens.tolist() for row in rows] == [[2, 2]]
    with pytest.raises(sk.PackingError, match=rf"features\[{place}\] holds {length} tokens"):
        PackingCollator(capacity, pad_id=0)(records)


@pytest.mark.parametrize("strategy", ["best", "ffd", "first_fit", "next_fit"])
@pytest.mark.parametrize(
    "capacity", [*given("packing-04")["capacities"], 10, 11, 12, 13, 15, 17, 31, 33, 4095, 4097, 65_537]
)
def test_packing_04_rows_of_any_width_are_filled(capacity, strategy):
    lengths = given("packing-04")["sample_lengths"]
    assert list(right("packing-04")["result"].values()) == [[[0, 1]]] * 2
    plan = sk.plan_packing(lengths, capacity, strategy=strategy)
    assert [row.tolist() for row in plan] == [[0, 1]]
    many = sk.plan_packing([capacity // 2] * 20, capacity, strategy=strategy)
    assert many.num_rows == 10  # two halves, or halves and a token less, share each row


@pytest.mark.parametrize("lengths", [given("packing-06")["sample_lengths"], [1, 1], [7], [3, 2, 2], [8]])
def test_packing_06_padding_belongs_to_no_document(lengths):
    """batching.md wins over the case: padding is a segment of its own in cu_seqlens; seq_lens lists documents only."""
    case, expected = given("packing-06"), right("packing-06")["result"]
    records = [sk.Record(range(10, 10 + size), [0.0] + [1.0] * (size - 1)) for size in lengths]
    rows = sk.pack(records, case["capacity"], pad_id=0, strategy="next_fit")
    batch = sk.SampleBatch(rows)
    assert all(row.length == case["pad_to"] == expected["total_len"] for row in rows)
    found = batch.to_training(return_cu_seqlens=True, return_seq_lens=True, return_padding_mask=True, flatten=True)
    ends = np.cumsum(lengths).tolist()
    width = case["pad_to"]
    assert found["cu_seqlens"].tolist() == [0, *ends] + [width] * (ends[-1] < width)
    assert found["seq_lens"].tolist() == lengths
    assert found["positions"][: ends[-1]].tolist() == [place for size in lengths for place in range(size)]
    assert found["loss_mask"][found["padding_mask"]].tolist() == [expected["weights_on_padding"]] * (width - ends[-1])
    assert found["max_seqlen"] == max(*lengths, width - ends[-1])
    if lengths == case["sample_lengths"]:
        assert found["seq_lens"].max() == expected["max_seqlen"]
        assert found["positions"][:5].tolist() == expected["position_ids_first5"]


@pytest.mark.parametrize("max_length", range(2, 8))
@pytest.mark.parametrize("side", SIDES)
def test_truncation_02_every_array_is_cut_at_the_same_end(side, max_length):
    case = given("truncation-02")
    arrays = {"loss_mask": case["loss_mask"], "logprobs": case["logprobs"], "turn": [0, 0, 1, 1, 2, 2]}
    kept = slice(0, max_length) if side == "right" else slice(max(0, 6 - max_length), 6)
    for rows in (
        sk.pack([sk.Record(case["tokens"], **arrays)], max_length, pad_id=0, oversize=SIDES[side]),
        streamed([sk.Record(case["tokens"], **arrays)], max_length, oversize=SIDES[side]),
    ):
        (document,) = rows[0].documents
        found = {"tokens": document.tokens, "loss_mask": document.loss_mask, **document.per_token}
        for name, values in {"tokens": case["tokens"], **arrays}.items():
            assert found[name].tolist() == pytest.approx(values[kept]), name
        if (side, max_length) == (case["side"], case["max_length"]):
            for name, values in right("truncation-02")["result"].items():
                assert found[name].tolist() == pytest.approx(values)
    item = {"input_ids": case["tokens"], "loss_mask": case["loss_mask"]}
    labels = PackingCollator(max_length, pad_id=0, oversize=SIDES[side])([item])["labels"][0].tolist()
    plain = [token if mask else -100 for token, mask in zip(case["tokens"][kept], case["loss_mask"][kept], strict=True)]
    assert labels == [-100, *plain[1:]]


@pytest.mark.parametrize("max_length", range(2, 6))
def test_truncation_04_a_cut_invents_no_stop_token(max_length):
    """The cut agrees with the case; that a sample was cut is counted by the plan, not flagged on the sample."""
    case = given("truncation-04")
    record = sk.Record(case["tokens"], case["loss_mask"])
    rows = sk.pack([record], max_length, pad_id=9, oversize="truncate")
    (document,) = rows[0].documents
    assert document.tokens.tolist() == case["tokens"][:max_length]
    assert document.loss_mask.tolist() == case["loss_mask"][:max_length]
    assert (document.tokens == 2).any() == (max_length == 5)
    assert rows.plan.num_truncated_items == (max_length < 5)
    if max_length == case["max_length"]:
        assert document.tokens.tolist() == right("truncation-04")["result"]["tokens"]
    for packed in (True, False):
        batch = PackingCollator(max_length, pad_id=9, packed=packed, oversize="truncate")([record])
        assert batch["input_ids"].tolist() == [case["tokens"][:max_length]]


@pytest.mark.parametrize("last", [*given("truncation-08")["stop_ids"], 21])
@pytest.mark.parametrize("reason", ["stop", "STOP_REASON_STOP", "length", "max_tokens", None])
def test_truncation_08_the_stop_reason_decides_whatever_the_last_token_is(last, reason):
    case = given("truncation-08")
    tokens = [*case["completion"][:2], last]
    group = sk.Group(
        [5],
        [sk.Completion(tokens, [-0.1] * 3, reward=reward, stop_reason=reason) for reward in (0.0, 1.0)],
    )
    limited = reason in ("length", "max_tokens")
    assert [completion.was_cut for completion in group.completions] == [limited] * 2
    found = sk.build_grpo_samples([group], overlong="mask")
    assert len(found) == (0 if limited else 2)
    assert right("truncation-08")["result"] is False


@pytest.mark.parametrize("lengths", [given("shift-04")["sample_lengths"], [1, 6], [6, 1, 3], [2, 2]])
@pytest.mark.parametrize("side", given("shift-04")["pad_side"])
def test_shift_04_values_come_back_whole_from_the_side_that_is_not_padded(lengths, side):
    rng = np.random.default_rng(0)
    values = [rng.random(size).tolist() for size in lengths]
    items = [{"input_ids": [7] * size} for size in lengths]
    collated = PackingCollator(8, pad_id=7, packed=False, padding_side=side)(items)
    table = torch.full(collated["input_ids"].shape, 99.0, dtype=torch.float64)
    table[collated["attention_mask"] == 1] = torch.tensor(
        [value for row in values for value in row], dtype=torch.float64
    )
    assert [part.tolist() for part in sk.unpack(table, collated)] == values
    packed = sk.SampleBatch(sk.pack([[7] * size for size in lengths], 8, pad_id=7, strategy="next_fit"))
    flat = np.full(sum(row.length for row in packed.rows), 99.0)
    flat[packed.to_training(return_padding_mask=True, flatten=True)["padding_mask"] == 0] = np.concatenate(values)
    assert [part.tolist() for part in sk.unpack(flat, packed)] == values
