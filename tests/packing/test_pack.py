"""pack and StreamingPacker: no token, weight or array value is lost, split or moved."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit import PackedRecord, PackingError, Record, StreamingPacker, build_sample, pack

DOCUMENTS = st.lists(
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=9), max_size=25
)


def records_of(documents):
    return [
        Record([token for token, _ in pairs], [weight for _, weight in pairs], logprobs=[-weight for _, weight in pairs])
        for pairs in documents
    ]  # fmt: skip


def contents(record):
    return (
        record.tokens.tolist(),
        record.loss_mask.tolist(),
        {name: values.tolist() for name, values in record.per_token.items()},
    )


def stream(records):
    packer = StreamingPacker(4, pad_id=0)
    return [row for record in records for row in packer.add(record)] + packer.flush()


def by_id(rows):
    return {document.id: contents(document) for row in rows for document in row.documents}


@given(DOCUMENTS, st.sampled_from(["best", "ffd", "first_fit", "next_fit"]), st.one_of(st.none(), st.just(7)))
def test_packing_loses_no_token_and_no_weight(documents, strategy, seed):
    records = records_of(documents)
    rows = pack(records, 9, pad_id=3, strategy=strategy, seed=seed)
    assert by_id(rows) == {place: contents(record) for place, record in enumerate(records)}
    assert sum(row.seq_lens.sum() for row in rows) == sum(record.length for record in records)
    assert sum(float(row.loss_mask.sum()) for row in rows) == sum(float(record.loss_mask.sum()) for record in records)
    for row in rows:
        check_row(row, 9, 3)


def check_row(row, width, pad_id):
    """A row holds its documents and one segment of padding, and every array says so."""
    start = row.length - row.padding_length
    assert row.length == width
    assert (row.tokens[start:] == pad_id).all()
    assert not row.loss_mask[start:].any()
    assert not row.per_token["logprobs"][start:].any()
    segments = [*row.seq_lens.tolist(), row.padding_length]
    assert row.per_token["positions"].tolist() == [place for size in segments for place in range(size)]
    expected = [number for number, size in enumerate(row.seq_lens.tolist(), 1) for _ in range(size)]
    assert row.document_ids.tolist() == expected + [0] * row.padding_length


@given(DOCUMENTS, st.integers(1, 5))
def test_the_streaming_packer_gives_every_record_once_and_keeps_few_rows_open(documents, num_open):
    records = records_of(documents)
    packer = StreamingPacker(9, pad_id=3, num_open=num_open)
    early = [row for record in records for row in packer.add(record)]
    late = packer.flush()
    assert len(late) <= num_open
    assert by_id(early + late) == {place: contents(record) for place, record in enumerate(records)}
    assert packer.num_tokens == sum(record.length for record in records)
    assert packer.flush() == []


@given(DOCUMENTS)
def test_the_streaming_packer_fills_rows_as_first_fit_plans_them(documents):
    records = records_of(documents)
    packer = StreamingPacker(9, pad_id=3)
    streamed = [row for record in records for row in packer.add(record)] + packer.flush()
    assert [row.ids for row in streamed] == [row.ids for row in pack(records, 9, pad_id=3, strategy="first_fit")]


def test_rows_of_known_boundaries():
    """packing-06: batching.md wins over the case: padding is a segment of its own; seq_lens lists documents only."""
    (row,) = pack([Record([5, 6], [0, 1]), Record([7, 8, 9], [0, 1, 1])], 8, pad_id=0, strategy="next_fit")
    assert row.tokens.tolist() == [5, 6, 7, 8, 9, 0, 0, 0]
    assert row.seq_lens.tolist() == [2, 3]
    assert row.per_token["positions"].tolist() == [0, 1, 0, 1, 2, 0, 1, 2]
    assert row.loss_mask.tolist() == [0, 1, 0, 1, 1, 0, 0, 0]
    assert row.padding_length == 3


@pytest.mark.parametrize("lengths", [[5, 2], [2, 5], [9], [1, 1, 8]])
def test_a_sample_that_fits_no_row_is_named_never_split(lengths):
    """packing-02 and its class."""
    records = [Record(range(length)) for length in lengths]
    place = next(index for index, length in enumerate(lengths) if length > 4)
    with pytest.raises(PackingError, match=f"sample {place} holds {lengths[place]} tokens.*max_length=4"):
        pack(records, 4, pad_id=0)
    with pytest.raises(PackingError, match=f"sample {place} holds {lengths[place]} tokens.*max_length=4"):
        stream(records)
    dropped = pack(records, 4, pad_id=0, oversize="drop")
    assert dropped.plan.num_dropped == lengths[place]
    assert sorted(document.length for row in dropped for document in row.documents) == sorted(
        length for length in lengths if length <= 4
    )


@pytest.mark.parametrize(
    ("oversize", "kept"), [("truncate", slice(0, 4)), ("truncate_left", slice(2, 6))], ids=["right", "left"]
)
def test_a_cut_takes_the_same_tokens_of_every_array_and_invents_no_stop(oversize, kept):
    """truncation-02 and truncation-04, on the side of collation."""
    tokens, mask, logprobs = [1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1], [0, 0, 0, -0.25, -0.5, -0.75]
    rows = pack([Record(tokens, mask, logprobs=logprobs)], 4, pad_id=9, oversize=oversize)
    found = {"tokens": rows[0].tokens, "mask": rows[0].loss_mask, "logprobs": rows[0].per_token["logprobs"]}
    assert {name: values.tolist() for name, values in found.items()} == {
        "tokens": tokens[kept], "mask": mask[kept], "logprobs": logprobs[kept],
    }  # fmt: skip
    assert (rows.plan.num_truncated, rows.plan.num_truncated_items) == (2, 1)
    packer = StreamingPacker(4, pad_id=9, oversize=oversize)
    (streamed,) = packer.add(Record(tokens, mask, logprobs=logprobs))
    assert contents(streamed) == contents(rows[0])
    assert packer.num_truncated == 2


def test_a_dropped_record_is_counted_by_the_streaming_packer():
    packer = StreamingPacker(4, pad_id=0, oversize="drop")
    assert packer.add(Record(range(9))) == []
    assert (packer.num_tokens, packer.num_dropped, packer.flush()) == (9, 9, [])


def test_groups_and_a_limit_of_items_hold_in_rows():
    records = [Record([place, place], id=f"r{place}") for place in range(6)]
    rows = pack(records, 8, pad_id=0, groups=["a", "b"] * 3, max_items=2)
    found = {frozenset(row.ids) for row in rows}
    assert all(len({int(name[1:]) % 2 for name in ids}) == 1 and len(ids) <= 2 for ids in found)
    assert set().union(*found) == {f"r{place}" for place in range(6)}


def test_samples_mappings_and_plain_tokens_are_records_too():
    sample = build_sample([1, 2, 3], [0, 1, 1])
    (row,) = pack([sample, {"input_ids": [4, 5], "loss_mask": [0, 1], "text": "x"}], 5, pad_id=0)
    assert row.tokens.tolist() == [1, 2, 3, 4, 5]
    assert pack([[1, 2], np.array([3])], 3, pad_id=0)[0].tokens.tolist() == [1, 2, 3]


def test_what_makes_no_row_is_refused():
    masked, plain = Record([1, 2], [0, 1]), Record([1, 2])
    (row,) = pack([plain, plain], 4, pad_id=0)
    faults = {
        r"records\[1\] has no loss_mask, records\[0\] has one": [masked, plain],
        r"records\[0\] has no logprobs, records\[1\] has": [plain, Record([1], logprobs=[0.0])],
        r"records\[1\] holds 1 tokens of padding": [plain, Record([1, 0], padding_length=1)],
        r"records\[0\] holds several documents": [row],
        r"records\[0\] holds several documents ": [Record([1, 2], positions=[0, 0])],
        r"records\[0\] is a list of 2 documents.*pack": [[[1], [2]]],
    }
    for words, records in faults.items():
        with pytest.raises(PackingError, match=words):
            pack(records, 4, pad_id=0)
        with pytest.raises(PackingError, match=words):
            stream(records)
    for pad_id in (None, -1, True, 1.0):
        with pytest.raises(PackingError, match="pad_id is"):
            pack([plain], 4, pad_id=pad_id)
    with pytest.raises(TypeError, match=r"records\[0\] is a str"):
        pack(["abc"], 4, pad_id=0)


def test_whole_numbers_and_fractions_of_one_name_become_fractions():
    rows = pack([Record([1], score=[2]), Record([1], score=[0.5])], 2, pad_id=0, strategy="next_fit")
    assert rows[0].per_token["score"].tolist() == [2.0, 0.5]


def test_rows_pickle_and_copy_and_stay_read_only():
    (row,) = pack([Record([1, 2], [0, 1])], 4, pad_id=0)
    for twin in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert isinstance(twin, PackedRecord)
        assert contents(twin) == contents(row)
        assert not twin.tokens.flags.writeable
        assert not twin.per_token["positions"].flags.writeable
    with pytest.raises(TypeError, match=r"samplekit\.pack"):
        PackedRecord()
