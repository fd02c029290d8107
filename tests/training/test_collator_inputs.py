"""What the collator reads: every kind of item gives what a plain loop gives, whole batches as single items do."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import samplekit as sk
from samplekit.training import PackingCollator
from samplekit.training.columns import read_together

KINDS = {
    "list": list,
    "int64": lambda values: np.array(values, np.int64),
    "int32": lambda values: np.array(values, np.int32),
    "tensor": torch.tensor,
}
COLUMNS = st.sets(st.sampled_from(["labels", "loss_mask", "completion_mask", "assistant_masks", "attention_mask"]))
TOKENS = st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), min_size=1, max_size=9)
SAMPLES = st.lists(TOKENS, min_size=1, max_size=6)


def items_of(samples, columns, cast):
    """Items with those columns; the two flags of a token say what the labels and every mask hold."""
    made = {
        "input_ids": lambda pairs: [token for token, _, _ in pairs],
        "labels": lambda pairs: [token if one else -100 for token, one, _ in pairs],
        "attention_mask": lambda pairs: [1] * len(pairs),
    }
    masks = {name: lambda pairs: [int(other) for _, _, other in pairs] for name in columns if "mask" in name}
    makers = {**masks, **made}
    return [{name: cast(makers[name](pairs)) for name in ["input_ids", *sorted(columns)]} for pairs in samples]


def plainly(samples, columns):
    """Each sample's tokens, and its labels: a token trains where all columns say so, the first never."""
    masked = columns & {"loss_mask", "completion_mask", "assistant_masks"}
    found = []
    for pairs in samples:
        labels = [-100]
        for token, one, other in pairs[1:]:
            labels.append(token if (one or "labels" not in columns) and (other or not masked) else -100)
        found.append(([token for token, _, _ in pairs], labels))
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(samples=SAMPLES, columns=COLUMNS)
def test_items_of_every_kind_give_what_a_plain_loop_gives(kind, samples, columns):
    items, plain = items_of(samples, columns, KINDS[kind]), plainly(samples, columns)
    flat = PackingCollator(9, pad_id=0)(items)
    assert read_together(items) is not None
    assert flat["input_ids"].tolist() == [[token for tokens, _ in plain for token in tokens]]
    assert flat["labels"].tolist() == [[label for _, labels in plain for label in labels]]
    assert flat["position_ids"].tolist() == [[place for tokens, _ in plain for place in range(len(tokens))]]
    ends = [sum(len(tokens) for tokens, _ in plain[:number]) for number in range(len(plain) + 1)]
    assert flat["cu_seq_lens_q"].tolist() == ends
    assert flat["max_length_q"] == max(len(tokens) for tokens, _ in plain)
    assert {flat[name].dtype for name in ("input_ids", "labels", "position_ids")} == {torch.int64}


@pytest.mark.parametrize("side", ["left", "right"])
@given(samples=SAMPLES, columns=COLUMNS)
def test_rows_are_padded_on_the_side_asked_for(side, samples, columns):
    items, plain = items_of(samples, columns, list), plainly(samples, columns)
    rows = PackingCollator(9, pad_id=7, packed=False, padding_side=side)(items)
    width = max(len(tokens) for tokens, _ in plain)

    def padded(values, pad):
        filling = [pad] * (width - len(values))
        return filling + values if side == "left" else values + filling

    assert rows["input_ids"].tolist() == [padded(tokens, 7) for tokens, _ in plain]
    assert rows["labels"].tolist() == [padded(labels, -100) for _, labels in plain]
    assert rows["attention_mask"].tolist() == [padded([1] * len(tokens), 0) for tokens, _ in plain]


@pytest.mark.parametrize("side", ["left", "right"])
@given(samples=SAMPLES)
def test_shift_04_values_come_back_from_rows_padded_on_either_side(side, samples):
    """Uncollating what was collated gives it back, for values of tokens and for values of positions."""
    given_tokens = [[token for token, _, _ in pairs] for pairs in samples]
    rows = PackingCollator(9, pad_id=0, packed=False, padding_side=side)([{"input_ids": ids} for ids in given_tokens])
    assert [part.tolist() for part in sk.unpack(rows["input_ids"], rows)] == given_tokens
    targets = rows["input_ids"].roll(-1, dims=1)  # position i predicts token i + 1; the last column predicts nothing
    targets = targets[:, : targets.shape[1] - 1]
    if targets.shape[1]:
        assert [part.tolist() for part in sk.unpack(targets, rows)] == [ids[1:] for ids in given_tokens]


def test_shift_04_the_case_of_the_field_padded_on_the_left():
    attention = {"attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])}
    returned = sk.unpack([[9.0, 9.0, -0.1, -0.2], [-1.0, -2.0, -3.0, -4.0]], attention)
    assert [part.tolist() for part in returned] == [[-0.1, -0.2], [-1, -2, -3, -4]]
    for mask in ({}, {"attention_mask": [1, 1]}, {"attention_mask": [[1, 0, 1, 1], [1, 1, 1, 1]]}):
        with pytest.raises(sk.AlignmentError, match="attention_mask"):
            sk.unpack([[9.0] * 4] * 2, mask)


def test_mask_04_an_end_token_trains_though_it_is_the_pad_token_and_padding_never_does():
    """The class: padding told by the id of the pad token. Every place of an end token, in both forms."""
    for place in range(4):
        tokens = [5, 6, 7, 8]
        tokens[place] = 2
        items = [{"input_ids": tokens}, {"input_ids": [2, 9, 2, 2, 9, 2]}]
        for packed in (True, False):
            batch = PackingCollator(8, pad_id=2, packed=packed, pad_to_multiple_of=8)(items)
            labels = batch["labels"][batch["labels"] != -100].tolist()
            assert labels == [*tokens[1:], 9, 2, 2, 9, 2]
            assert (batch["labels"] != -100).sum() == 8


FAULTS = {
    "shifted labels": ([5, 6, 7], {"labels": [6, 7, -100]}, r"features\[1\]\['labels'\] holds 6 at index 0"),
    "short labels": ([5, 6, 7], {"labels": [5, 6]}, r"features\[1\]: labels holds 2 values, input_ids holds 3 tokens"),
    "labels as a mask": ([5, 6, 7], {"loss_mask": [-100, 6, 7]}, r"features\[1\]: loss_mask holds -100 at index 0"),
    "a short mask": ([5, 6, 7], {"loss_mask": [1, 1]}, "loss_mask holds 2 values, input_ids holds 3 tokens"),
    "no number": ([5, 6, 7], {"loss_mask": [0.0, float("nan"), 1.0]}, "loss_mask holds nan at index 1"),
    "a bool": ([5, True, 7], {}, "tokens holds True at index 1"),
    "a negative id": ([5, -1, 7], {}, "tokens holds -1 at index 1"),
    "a fraction": ([5, 1.0, 7], {}, "tokens holds 1.0 at index 1"),
    "text": ([5, "6", 7], {}, "tokens holds '6' at index 1"),
    "beyond int64": ([5, 2**63, 7], {}, "tokens holds 9223372036854775808 at index 1"),
    "no token": ([], {}, "tokens is empty"),
    "a hole": ([5, 6, 7], {"attention_mask": [1, 0, 1]}, r"features\[1\]\['attention_mask'\] leaves out all tokens or some inside"),
    "no token seen": ([5, 6, 7], {"attention_mask": [0, 0, 0]}, r"features\[1\]\['attention_mask'\] leaves out all tokens"),
    "one number for all": ([5, 6, 7], {"attention_mask": 1}, r"features\[1\]: attention_mask is 1, expected a 1-D sequence"),
    "no sequence": (7, {}, r"features\[1\]: tokens is 7, expected a 1-D sequence"),
    "too long documents": ([5, 6, 7], {"seq_lengths": [2, 2]}, r"features\[1\]: seq_lengths counts 4 tokens, input_ids holds 3"),
    "short numbers": ([5, 6, 7], {"document_ids": [1]}, r"features\[1\]: document_ids holds 1 values, input_ids holds 3"),
}  # fmt: skip


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_read_is_named_and_never_read_as_something_else(fault, packed):
    tokens, columns, words = FAULTS[fault]
    good = {"input_ids": [1, 2, 3], **{name: [1, 2, 3] if name == "labels" else [1, 1, 1] for name in columns}}
    good.pop("document_ids", None)
    bad = {"input_ids": tokens, **columns}
    with pytest.raises(ValueError, match=words):
        PackingCollator(8, pad_id=0, packed=packed)([good, bad])


ARRAYS = {
    "shifted labels": ([5, 6, 7], {"labels": [6, 7, -100]}, r"features\[1\]\['labels'\] holds 6 at index 0"),
    "labels as a mask": ([5, 6, 7], {"loss_mask": [-100, 6, 7]}, r"features\[1\]: loss_mask holds -100 at index 0"),
    "no number": ([5, 6, 7], {"loss_mask": [0.0, np.inf, 1.0]}, r"features\[1\]: loss_mask holds inf at index 1"),
    "a negative id": ([5, -1, 7], {}, r"features\[1\]: tokens holds -1 at index 1"),
    "fractions": ([5.0, 1.5, 7.0], {}, r"features\[1\]: tokens holds 5.0 at index 0"),
    "bools": ([True, False], {}, r"features\[1\]: tokens holds True at index 0"),
    "two dimensions": ([[5, 6]], {}, r"features\[1\]: tokens has shape \(1, 2\)"),
}  # fmt: skip


@pytest.mark.parametrize("cast", [np.array, torch.tensor])
@pytest.mark.parametrize("fault", ARRAYS)
def test_arrays_that_cannot_be_read_are_named_as_well(fault, cast):
    tokens, columns, words = ARRAYS[fault]
    good = {"input_ids": cast([1, 2, 3]), **{name: cast([1, 2, 3]) for name in columns}}
    with pytest.raises(ValueError, match=words):
        PackingCollator(8, pad_id=0)(
            [good, {name: cast(values) for name, values in columns.items()} | {"input_ids": cast(tokens)}]
        )


def test_items_of_unlike_kinds_are_read_one_by_one():
    mixed = [
        {"input_ids": [5, 6], "labels": [-100, 6]},
        {"input_ids": np.array([7, 8]), "loss_mask": [1, 1]},
        sk.Record([9, 10], [0, 1]),
    ]
    assert read_together(mixed) is None
    assert PackingCollator(8, pad_id=0)(mixed)["labels"].tolist() == [[-100, 6, -100, 8, -100, 10]]


@pytest.mark.parametrize(
    "columns", [("seq_lengths",), ("positions", "document_ids"), ("position_ids", "padding_length")]
)
def test_rows_of_a_file_keep_their_documents_and_padding(columns):
    (row,) = sk.pack([sk.Record([5, 6], [0, 1]), sk.Record([7, 8, 9], [0, 1, 1])], 8, pad_id=9, strategy="next_fit")
    held = {
        "seq_lengths": row.seq_lens.tolist(), "positions": row.per_token["positions"].tolist(),
        "position_ids": row.per_token["positions"].tolist(), "document_ids": row.document_ids.tolist(),
        "padding_length": 3,
    }  # fmt: skip
    item = {"input_ids": row.tokens.tolist(), "loss_mask": row.loss_mask.tolist(), **{n: held[n] for n in columns}}
    found = PackingCollator(8, pad_id=9)([item])
    expected = PackingCollator(8, pad_id=9)([row])
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(values)), name
    for rows in ([item], [row]):
        with pytest.raises(sk.PackingError, match=r"features\[0\] holds several documents"):
            PackingCollator(8, pad_id=9, packed=False)(rows)


def test_a_padded_row_of_one_document_is_attended_to_its_end():
    (row,) = sk.pack([sk.Record([5, 6], [0, 1])], 4, pad_id=6)
    batch = PackingCollator(4, pad_id=6, packed=False)([row, {"input_ids": [7, 8, 9], "loss_mask": [1, 1, 1]}])
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]
    assert batch["labels"].tolist() == [[-100, 6, -100, -100], [-100, 8, 9, -100]]
    cut = PackingCollator(3, pad_id=6, packed=False, oversize="truncate")([row])
    assert cut["attention_mask"].tolist() == [[1, 1, 0]]
