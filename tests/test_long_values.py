"""A value of thousands of digits or letters: refused by a name and a short message, wherever it stands."""

import pytest

import samplekit as sk

DIGITS = 10**5000  # Python itself refuses to print it
TEXT = "9" * 5000
SAMPLE = sk.build_sample([1, 2], [0, 1])

CALLS = {
    "a token of text": lambda: sk.build_sample([TEXT], [1]),
    "a token": lambda: sk.build_sample([1, DIGITS], [0, 1]),
    "a weight": lambda: sk.build_sample([1, 2], [0, DIGITS]),
    "one advantage": lambda: sk.build_sample([1, 2], [0, 1], advantages=DIGITS),
    "the name of an array": lambda: sk.build_sample([1, 2], [0, 1], extra={DIGITS: [1, 2]}),
    "a length": lambda: sk.build_sample([1, 2], [0, 1], max_length=-DIGITS),
    "a side": lambda: sk.build_sample([1, 2], [0, 1], truncation=TEXT),
    "a bound of check": lambda: sk.check([SAMPLE], max_length=-DIGITS),
    "a vocabulary": lambda: sk.check([SAMPLE], vocab_size=TEXT),
    "a code": lambda: sk.check([SAMPLE], allow=[TEXT]),
    "a bound of a loss": lambda: sk.PPO(clip_low=DIGITS),
    "a choice of a loss": lambda: sk.GRPO(aggregation=TEXT),
    "a weight of a loss": lambda: sk.DRO(beta=1e300),
    "a loss of the wire": lambda: sk.losses.Loss.from_wire({"type": TEXT}),
    "a sampled id": lambda: sk.Completion([DIGITS], [-1.0]),
    "a logprob": lambda: sk.Completion([1], [-DIGITS]),
    "a reward": lambda: sk.group_advantages([1, DIGITS]),
    "a group": lambda: sk.Group([1], [sk.Completion([1], [-1.0])] * 2, id=DIGITS),
    "a scale": lambda: sk.group_advantages([1, 2], scale=TEXT),
    "a record": lambda: sk.Record([1, DIGITS]),
    "a length to pack": lambda: sk.plan_packing([DIGITS], 5),
    "a length of rows": lambda: sk.plan_packing([1], DIGITS),
    "a strategy": lambda: sk.plan_packing([1], 5, strategy=TEXT),
    "a workload": lambda: sk.balance([DIGITS], 2),
    "a mask": lambda: sk.labels_from_mask([1, 2], [0, DIGITS]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_long_value_is_refused_in_a_short_message(call):
    with pytest.raises(sk.SamplekitError) as caught:
        call()
    assert len(str(caught.value)) < 600
