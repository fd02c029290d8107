"""Every public function of samplekit.training against values of every wrong kind: an error that names the argument.

A value that a function takes on purpose stands in ACCEPTED with the reason, and is tried too.
"""

import inspect

import numpy as np
import pytest
import torch
from loss_batches import hand_sample

import samplekit as sk
import samplekit.training as tr

NAN, INF = float("nan"), float("inf")
# What reads batches of the packer, and what functions give, is tried beside the collator.
ELSEWHERE = {"PackingCollator", "packed_logprobs", "unpack_tensors", "LossOutput", "DpoOutput", "FirstStep"}


def sample():
    return hand_sample([0, 1, 1], [0.0, 1.0, -1.0], [-1.0, -1.0, -1.0], [-1.5, -1.5, -1.5])


def row(*values):
    return torch.tensor(values or (-1.0, -2.0, -1.0))


class Table(torch.nn.Module):
    """A model of seven ids; `wrap` bends what it is given or gives."""

    def __init__(self, wrap=lambda logits: logits, put_before=0):
        super().__init__()
        self.table = torch.nn.Embedding(7, 7)
        self.wrap, self.put_before = wrap, put_before

    def forward(self, input_ids):
        longer = torch.cat([input_ids[:, :1]] * self.put_before + [input_ids], 1)
        return self.wrap(self.table(longer))


class Headed(Table):
    """One that says where its embedding and its output head are."""

    def __init__(self, put_before=0):
        super().__init__(put_before=put_before)
        self.head = torch.nn.Linear(7, 7)
        self.wrap = self.head

    def get_input_embeddings(self):
        return self.table

    def get_output_embeddings(self):
        return self.head


def squares(rows, _samples):
    return sum((item**2).sum() for item in rows)


LISTS = {
    "None": None, "text": "x", "a number": 3, "a mapping": {0: 1}, "a set": {1}, "a generator": (_ for _ in ()),
    "an array without dimensions": np.array(1.0), "a tensor without dimensions": torch.tensor(1.0),
}  # fmt: skip
ROWS = {
    **LISTS, "one bare row": row(), "none": [], "too many": [row()] * 3, "a padded batch": torch.zeros(2, 9),
    "a sparse batch": torch.zeros(2, 3).to_sparse(), "a meta batch": torch.zeros(2, 3, device="meta"),
    **{
        f"a row: {name}": [row(), value]
        for name, value in {
            "None": None, "text": "abc", "a number": -1.0, "a mapping": {0: -1.0}, "too short": row(-1.0), "2-D": row()[None],
            "whole numbers": torch.tensor([-1, -2, -1]), "bools": np.array([True] * 3), "complex": row().to(torch.complex64),
            "texts": ["a", "b", "c"], "None among numbers": [-1.0, None, -1.0], "ragged": [[-1.0], [-1.0, 2.0], [0.0]],
            "objects": np.array([-1.0, "x", None], dtype=object), "masked": np.ma.array([-1.0] * 3, mask=[0, 1, 0]),
            "sparse": row().to_sparse(), "meta": torch.zeros(3, device="meta"), "a generator": (_ for _ in ()),
            **{f"{value} where it trains": row(-1.0, value, -1.0) for value in (NAN, INF, -INF)},
            **{f"{value} in an array": np.array([-1.0, -1.0, value], dtype=np.longdouble) for value in (NAN, INF, -INF)},
        }.items()
    },
}  # fmt: skip
SAMPLES = {
    **LISTS, "one bare sample": sample(), "a mapping of the wire": sample().to_wire(), "an array": np.zeros((2, 3)),
    **{f"holds {name}": [sample(), value] for name, value in {**LISTS, "the wire's": sample().to_wire()}.items()},
}  # fmt: skip
NUMBERS = {
    "NaN": NAN, "inf": INF, "-inf": -INF, "negative": -1, "True": True, "text": "1", "a list": [1.0], "complex": 1j,
    "an array": np.array([1.0, 2.0]), "a tensor": torch.tensor([1.0, 2.0]), "an int that no float holds": 10**400,
    "a huge number": 1e300,
}  # fmt: skip
ABOVE_ZERO = {**NUMBERS, "0": 0, "a number whose inverse no float holds": 1e-320, "False": False}
WHOLE = {name: value for name, value in NUMBERS.items() if not name.startswith("an int")} | {
    "a part": 1.5,
    "None": None,
}
CHOICES = {"None": None, "another word": "mean", "a number": 1, "a list": ["k3"], "an array": np.array(["k3", "means"])}
LOSSES = {"None": None, "text": "ppo", "a class": sk.PPO, "a mapping": sk.PPO().to_wire(), "an array": np.zeros(2)}
FUNCTIONS = {
    "None": None, "text": "x", "a loss": sk.PPO(), "gives nothing": lambda rows, _: None, "a number": lambda rows, _: 1.0,
    "rows": lambda rows, _: rows[0], "gives text": lambda rows, _: "x", "an empty tuple": lambda rows, _: (),
    "complex": lambda rows, _: (rows[0] * 1j).sum(), "whole numbers": lambda rows, _: rows[0].sum().long(),
    "NaN": lambda rows, _: rows[0].sum() * NAN, "inf": lambda rows, _: rows[0].sum() + INF,
    "what has no slope": lambda rows, _: rows[0].sum().detach(),
}  # fmt: skip
MODELS = {
    "None": None, "text": "gpt2", "a function": lambda input_ids: torch.zeros(1, 3, 6), "a class": Table,
    "one that puts a position before": Table(put_before=1), "and reads it by a head": Headed(put_before=1),
    "gives None": Table(lambda logits: None), "gives a tuple": Table(lambda logits: (logits,)),
    "gives a mapping": Table(lambda logits: {"logits": logits}), "gives whole numbers": Table(lambda logits: logits.long()),
    "gives the last position": Table(lambda logits: logits[:, -1]), "gives one number": Table(lambda logits: logits.sum()),
    "gives no ids": Table(lambda logits: logits[..., :0]), "knows too few ids": Table(lambda logits: logits[..., :2]),
}  # fmt: skip
LOGITS = {
    "None": None, "a list": [[0.0] * 6] * 3, "an array": np.zeros((3, 6)), "whole numbers": torch.zeros(3, 6).long(),
    "complex": torch.zeros(3, 6, dtype=torch.complex64), "sparse": torch.zeros(3, 6).to_sparse(), "no ids": torch.zeros(3, 0),
    "meta": torch.zeros(3, 6, device="meta"), "one number": torch.tensor(1.0), "other rows": torch.zeros(4, 6),
}  # fmt: skip
TARGETS = {
    "None": None, "a list": [0, 1, 2], "an array": np.arange(3), "floats": torch.zeros(3), "sparse": torch.arange(3).to_sparse(),
    "meta": torch.zeros(3, dtype=torch.int64, device="meta"), "bools": torch.ones(3).bool(), "too few": torch.arange(2),
    **{f"id {value}": torch.tensor([0, value, 1]) for value in (-100, -1, 6, 2**40)},
}  # fmt: skip
TEMPERATURES = {
    "a list": [0.7], "text": "0.7", "a number": 0.7, "a set": {0.7},
    **{f"key {name}": {value: [row()] * 2} for name, value in {
        "0": 0, "-1": -1.0, "text": "0.7", "None": None, "NaN": NAN, "inf": INF, "True": True, "tiny": 1e-320}.items()},
    **{f"rows: {name}": {0.7: value} for name, value in ROWS.items()},
}  # fmt: skip
PAIRS = {
    "none": [], "text": "01", "a number": 1, "a mapping": {0: 1}, "a set": {(0, 1)}, "indices alone": [0, 1],
    "a sparse tensor": torch.tensor([[0, 1]]).to_sparse(), "a meta tensor": torch.zeros(1, 2, device="meta"),
    "an array without dimensions": np.array(1), "an array of floats": np.array([[0.0, 1.0]]),
    **{f"a pair {pair!r}": [pair] for pair in
       ((0.0, 1.0), ("0", "1"), "01", (True, False), (0,), (0, 1, 0), (0, 0), (0, 2), (-1, 0), None, {0: 1}, {0, 1})},
}  # fmt: skip
GRADIENTS = {**{name: value for name, value in ROWS.items() if name != "None"}, "others": [row(), row()]}
BATCH = {"policy_logprobs": ROWS, "samples": SAMPLES}
SETTINGS = {"horizon": ABOVE_ZERO, "normalizer": ABOVE_ZERO, "sequence_mean": CHOICES, "kl": CHOICES}
BOUNDS = {**{name: value for name, value in NUMBERS.items() if name != "a huge number"}, "None": None}
OF_CHECK = {"rtol": NUMBERS, "atol": {**NUMBERS, "a huge number": 1e40}, "step": ABOVE_ZERO, "seed": WHOLE,
            "num_positions": WHOLE | {"0": 0}}  # fmt: skip

TABLE = {
    "compute_loss": {**BATCH, "loss": LOSSES, **SETTINGS},
    "closed_form_gradients": {**BATCH, "loss": LOSSES, **SETTINGS},
    "dpo_loss": {**BATCH, "beta": ABOVE_ZERO, "pairs": PAIRS, "normalizer": ABOVE_ZERO},
    "policy_diagnostics": {
        **BATCH, "clip_low": BOUNDS | {"an offset": 1.2}, "clip_high": BOUNDS | {"an offset": 0.28}},
    "diagnose_first_step": {**BATCH, "tolerance": NUMBERS | {"2": 2.0, "None": None}, "at_temperatures": TEMPERATURES},
    "loss_gradients": {"loss_fn": FUNCTIONS, **BATCH},
    "check_gradients": {"loss_fn": FUNCTIONS, **BATCH, "gradients": GRADIENTS, **OF_CHECK},
    "target_logprobs": {
        "model": MODELS, "samples": SAMPLES, "temperature": ABOVE_ZERO, "batch_tokens": WHOLE | {"0": 0}},
    "gather_logprobs": {"logits": LOGITS, "targets": TARGETS, "temperature": ABOVE_ZERO},
}  # fmt: skip
CASES = [
    pytest.param(function, argument, value, id=f"{function}, {argument}: {label}")
    for function, arguments in TABLE.items()
    for argument, values in arguments.items()
    for label, value in values.items()
]
ACCEPTED = {
    "a row of longdouble is read in float64": ("compute_loss", "policy_logprobs", [np.full(3, -1.0, np.longdouble), row()]),
    "a row of half precision is widened": ("compute_loss", "policy_logprobs", [row().bfloat16(), row()]),
    "a row that is a list is read in float64": ("loss_gradients", "policy_logprobs", [[-1.0, -1.0, -1.0], row()]),
    "NaN where nothing trains is never read": ("dpo_loss", "policy_logprobs", [row(NAN, -1.0, -1.0), row()]),
    "a stack of rows of one length is a list": ("compute_loss", "policy_logprobs", torch.zeros(2, 3)),
    "samples in an array are a list": ("compute_loss", "samples", np.array([sample(), sample()], dtype=object)),
    "no tolerance at all may be asked for": ("diagnose_first_step", "tolerance", 0),
    "no other temperature need be known": ("diagnose_first_step", "at_temperatures", {}),
    "a model without a head gives logits bare": ("target_logprobs", "model", Table()),
    "a head reads only what is wanted": ("target_logprobs", "model", Headed()),
    "no sample has no logprobs": ("target_logprobs", "samples", []),
    "a seed may be as large as it likes": ("check_gradients", "seed", 10**400),
}  # fmt: skip


def call(function, argument, value):
    samples = [sample(), sample()]
    right = {
        "policy_logprobs": [row(), row()], "samples": samples, "loss": sk.GRPO(), "loss_fn": squares, "model": Table(),
        "logits": torch.zeros(3, 6), "targets": torch.arange(3),
    }  # fmt: skip
    known = inspect.signature(getattr(tr, function)).parameters
    return getattr(tr, function)(**{name: item for name, item in right.items() if name in known} | {argument: value})


@pytest.mark.parametrize(("function", "argument", "value"), CASES)
def test_a_wrong_value_is_refused_by_the_name_of_its_argument(function, argument, value):
    with pytest.raises(sk.SampleError) as caught:
        call(function, argument, value)
    message = str(caught.value)
    named = {argument, "logits"} if argument == "model" else {argument.removesuffix("s")}
    assert any(name in message for name in named)
    assert len(message) < 500


@pytest.mark.parametrize("reason", ACCEPTED)
def test_what_is_taken_on_purpose_is_taken(reason):
    call(*ACCEPTED[reason])


def test_the_table_holds_every_argument_of_every_function():
    for name in set(tr.__all__) - ELSEWHERE:
        assert set(inspect.signature(getattr(tr, name)).parameters) == set(TABLE[name])


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("function", [name for name, arguments in TABLE.items() if "policy_logprobs" in arguments])
def test_a_logprob_that_is_not_finite_is_named_by_sample_and_position(function, value):
    with pytest.raises(sk.SampleError, match=rf"policy_logprobs\[1\] is {value} at position 2, which trains.*look for"):
        call(function, "policy_logprobs", [row(), row(-1.0, -1.0, value)])


@pytest.mark.parametrize(
    ("model", "words"), [(Headed(), r"samples\[1\].*position 1.*0 to 6"), (Table(), "largest id is 7")]
)
def test_an_id_that_the_model_cannot_read_is_named_before_torch_fails(model, words):
    with pytest.raises(sk.SampleError, match=words):
        tr.target_logprobs(model, [sk.build_sample([1, 2, 3], [0, 1, 1]), sk.build_sample([1, 7, 3], [0, 1, 1])])


def test_gradients_are_found_under_inference_mode_too():
    with torch.inference_mode():
        found = tr.loss_gradients(squares, [row()], [sample()])
    assert found[0].tolist() == [-2, -4, -2]
