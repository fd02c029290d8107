"""Documents of which nothing trains once they are cut: counted, named, and left out where that is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplekit import PackingError, Record, SampleError, StreamingPacker, build_sample, pack

# trained as given: 2, 1, 3, none (its only 1 stands at its first token), all but the first of 2
DOCUMENTS = {
    "tail": Record([1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 1, 1], id="tail"),
    "head": Record([1, 2, 3, 4, 5], [0, 1, 0, 0, 0], id="head"),
    "fits": Record([1, 2, 3, 4], [0, 1, 1, 1], id="fits"),
    "never": Record([1, 2, 3], [1, 0, 0], id="never"),
    "short": Record([1, 2], [1, 1], id="short"),
}


def streamed(records, **options):
    packer = StreamingPacker(4, pad_id=0, **options)
    return packer, [row for record in records for row in packer.add(record)] + packer.flush()


@pytest.mark.parametrize(
    ("oversize", "untrained", "lost"),
    [
        ("drop", ["never"], 2 + 1),
        ("truncate", ["never", "tail"], 2),
        ("truncate_left", ["head", "never"], 1),
    ],
)
@pytest.mark.parametrize("policy", ["keep", "drop"])
def test_what_a_cut_leaves_without_training_is_named_and_counted(oversize, untrained, lost, policy):
    records = list(DOCUMENTS.values())
    rows = pack(records, 4, pad_id=0, oversize=oversize, untrained=policy)
    packer, stream = streamed(records, oversize=oversize, untrained=policy)
    assert sorted(rows.untrained) == untrained
    assert packer.num_untrained == len(untrained)
    left = 2 + 1 + 3 + 1 - lost
    assert (rows.num_trained, rows.num_trained_lost) == (packer.num_trained, packer.num_trained_lost) == (left, lost)
    for made in (rows, stream):
        documents = {document.id: document for row in made for document in row.documents}
        assert (set(untrained) <= set(documents)) is (policy == "keep")
        assert set(DOCUMENTS) - set(documents) <= {"tail", "head", *untrained}
        trained = [documents[name].to_sample().num_trained for name in documents if name not in untrained]
        assert sum(trained) == left
        for name in untrained:
            if name in documents:
                with pytest.raises(SampleError):
                    documents[name].to_sample()
    tokens = sum(record.length for record in records)
    for counts in (rows.plan, packer):
        assert tokens == sum(n for row in rows for n in row.seq_lens) + counts.num_dropped + counts.num_truncated


LISTS = st.lists(st.lists(st.booleans(), min_size=1, max_size=9), max_size=12)


@given(LISTS, st.sampled_from(["drop", "truncate", "truncate_left"]))
def test_every_document_left_builds_a_sample_where_the_others_are_dropped(masks, oversize):
    records = [Record(range(len(mask)), mask) for mask in masks]
    rows = pack(records, 4, pad_id=0, oversize=oversize, untrained="drop")
    built = [document.to_sample() for row in rows for document in row.documents]
    assert sum(sample.num_trained for sample in built) == rows.num_trained
    assert rows.num_trained + rows.num_trained_lost == sum(sum(mask[1:]) for mask in masks)
    assert sum(map(len, masks)) == rows.plan.num_tokens + rows.plan.num_dropped + rows.plan.num_truncated


def test_rows_follow_the_plan_by_the_places_of_the_records_given():
    never, fits = DOCUMENTS["never"], DOCUMENTS["fits"]
    rows = pack([never, fits, never], 4, pad_id=0, untrained="drop", groups=[0, 1, 2])
    assert [row.tolist() for row in rows.plan] == [[1]]
    assert (rows.untrained, rows.plan.num_dropped, rows.plan.num_dropped_items) == (("never", "never"), 6, 2)


def test_where_nothing_is_lost_nothing_is_named():
    rows = pack([build_sample([1, 2, 3], [0, 1, 1]), build_sample([1, 2], [0, 1])], 5, pad_id=0)
    assert (rows.untrained, rows.num_trained, rows.num_trained_lost) == ((), 3, 0)


@pytest.mark.parametrize(
    "make", [lambda **given: pack([[1, 2]], 4, pad_id=0, **given), lambda **given: streamed([], **given)]
)
def test_another_policy_is_refused(make):
    with pytest.raises(PackingError, match="untrained is 'mask', expected one of keep, drop"):
        make(untrained="mask")
    with pytest.raises(PackingError, match="oversize is 'split'"):
        make(oversize="split")


def test_an_error_names_a_record_by_its_id_too():
    with pytest.raises(PackingError, match=r"sample 1 \('tail'\) holds 6 tokens"):
        pack([DOCUMENTS["fits"], DOCUMENTS["tail"]], 4, pad_id=0)
    with pytest.raises(PackingError, match=r"sample 1 \('tail'\) holds 6 tokens"):
        streamed([DOCUMENTS["fits"], DOCUMENTS["tail"]])


@pytest.mark.parametrize("max_length", [5, 3])
def test_what_a_sample_holds_beside_arrays_comes_back_from_a_row_and_of_a_cut_sample_too(max_length):
    sample = build_sample([1, 2, 3, 4, 5], [0, 1, 1, 1, 1], routed_experts_key="k", info={"source": "a:1"})
    record = Record.from_sample(sample)
    rows = pack([record], max_length, pad_id=0, oversize="truncate")
    packer = StreamingPacker(max_length, pad_id=0, oversize="truncate")
    for row in (rows[0], *packer.add(record)):
        (document,) = row.documents
        built = document.to_sample()
        assert built.tokens.tolist() == [1, 2, 3, 4, 5][:max_length]
        assert (built.routed_experts_key, built.info["source"]) == ("k", "a:1")


def dtypes(rows, name):
    return {str(row.per_token[name].dtype) for row in rows}


@pytest.mark.parametrize("values", [[[0], [-0.5]], [[-0.5], [0]], [[0], [0]]])
def test_logprobs_are_fractions_even_where_all_are_whole(values):
    records = [Record([1, 2, 3, 4], logprobs=found * 4) for found in values]
    assert dtypes(pack(records, 4, pad_id=0), "logprobs") == {"float32"}
    assert dtypes(streamed(records)[1], "logprobs") == {"float32"}


def test_a_stream_keeps_the_dtype_of_its_first_record():
    whole, broken = (Record([1, 2, 3, 4], score=found * 4) for found in ([1], [0.5]))
    assert dtypes(streamed([whole, whole])[1], "score") == {"int64"}
    assert dtypes(streamed([broken, whole])[1], "score") == dtypes(pack([broken, whole], 4, pad_id=0), "score")
    assert dtypes(streamed([broken, whole])[1], "score") == {"float32"}
    packer = StreamingPacker(4, pad_id=0)
    assert packer.add(whole)
    with pytest.raises(PackingError, match=r"records\[1\] holds fractions in score, records\[0\] whole numbers"):
        packer.add(broken)
    assert packer.add(whole)
    assert packer.num_tokens == 8
