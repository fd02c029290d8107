"""What a run will do: learning rates, the order of samples, and which of them are held out."""

import math
from dataclasses import replace

import pytest
from training_double import SAMPLES

import samplekit as sk
from samplekit.cli.submit_held_out import split_held_out
from samplekit.cli.submit_plan import Settings, make_plan

SETTINGS = Settings(
    model="samplekit/tiny", lora_rank=None, loss="cross_entropy", beta=None, epochs=1, batch_size=4, max_tokens=None,
    accumulate=1, learning_rate=1.0, schedule="linear", warmup=0.0, weight_decay=0.0, grad_clip=1.0, held_out=None, seed=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, [1, 1, 1, 1]),
        ("constant", 2, [0.5, 1, 1, 1]),
        ("linear", 0, [1, 0.75, 0.5, 0.25]),
        ("linear", 2, [0.5, 1, 1, 0.5]),
        ("linear", 0.5, [0.5, 1, 1, 0.5]),
        ("cosine", 0, [1, 0.5 + math.sqrt(0.5) / 2, 0.5, 0.5 - math.sqrt(0.5) / 2]),
        ("cosine", 9, [1 / 9, 2 / 9, 3 / 9, 4 / 9]),
    ],
)
def test_learning_rates_follow_the_schedule(schedule, warmup, expected):
    settings = replace(SETTINGS, schedule=schedule, warmup=warmup)
    assert [settings.rate_at(step, 4) for step in range(4)] == pytest.approx(expected)


def test_a_plan_is_the_same_for_the_same_seed_and_another_for_another():
    def order(seed):
        plan = make_plan(SAMPLES, [], replace(SETTINGS, epochs=2, accumulate=2, seed=seed), None)
        return [sample.info["n"] for step in plan.steps for batch in step.batches for sample in batch]

    assert order(3) == order(3) != order(4)


@pytest.mark.parametrize(("held_out", "count"), [("0.25", 5), ("5", 5), ("0.001", 1), ("19", 19)])
def test_samples_are_split_by_share_or_number(held_out, count):
    train, kept = split_held_out(SAMPLES, held_out, seed=1)
    assert len(kept) == count
    assert sorted(sample.info["n"] for sample in [*train, *kept]) == list(range(20))
    assert split_held_out(SAMPLES, held_out, seed=1)[1] == kept


def in_conversations(*lengths):
    """Give samples of conversations with so many replies each, all under the dataset's own name."""
    samples = iter(SAMPLES)
    return [
        next(samples).model_copy(update={"info": {"source": "a dataset", "message_index": 2 * reply + 1, "of": number}})
        for number, length in enumerate(lengths)
        for reply in range(length)
    ]


@pytest.mark.parametrize("held_out", ["1", "3", "0.3"])
@pytest.mark.parametrize("lengths", [(1, 4, 3, 2, 5), (1,) * 15, (7, 7)])
def test_conversations_are_held_out_whole(lengths, held_out):
    samples = in_conversations(*lengths)
    wanted = round(float(held_out) * len(samples)) if "." in held_out else int(held_out)
    for seed in range(20):
        train, kept = split_held_out(samples, held_out, seed)
        assert not {sample.info["of"] for sample in train} & {sample.info["of"] for sample in kept}
        assert wanted <= len(kept) < wanted + max(lengths)
        assert train
        assert len(train) + len(kept) == len(samples)


def test_every_conversation_may_be_held_out():
    samples = in_conversations(1, 4, 3, 2, 5)
    drawn = {sample.info["of"] for seed in range(50) for sample in split_held_out(samples, "1", seed)[1]}
    assert drawn == {0, 1, 2, 3, 4}


def test_one_conversation_cannot_be_parted():
    with pytest.raises(sk.SampleError, match="leaves nothing to train on"):
        split_held_out(in_conversations(12), "2", seed=0)


@pytest.mark.parametrize("held_out", ["0", "-1", "0.0", "1.0", "20.0", "1.5", "nan", "inf", "1e-1000", "many"])
def test_what_is_neither_a_share_nor_a_number_of_samples_is_refused(held_out):
    with pytest.raises(sk.SampleError, match=r"expected a share above 0 and below 1 \(0\.1\), a whole number"):
        split_held_out(SAMPLES, held_out, seed=1)


@pytest.mark.parametrize("held_out", ["20", "21", "9" * 400])
def test_a_split_that_leaves_nothing_to_train_on_is_refused(held_out):
    with pytest.raises(sk.SampleError, match="leaves nothing to train on"):
        split_held_out(SAMPLES, held_out, seed=1)
