"""The public names of samplekit.training, as the page of signatures gives them."""

import inspect

import pytest

import samplekit.training as training

REQUIRED = inspect.Parameter.empty
SETTINGS = {"horizon": None, "normalizer": None, "sequence_mean": "means", "kl": "k3"}
BATCH = {"policy_logprobs": REQUIRED, "samples": REQUIRED}
SIGNATURES = {
    "DpoOutput": (dict.fromkeys(["loss", "metrics", "pair_losses"], REQUIRED), {}),
    "FirstStep": (dict.fromkeys(["ok", "cause", "message", "metrics"], REQUIRED), {}),
    "LossOutput": (
        dict.fromkeys(["loss", "metrics", "token_losses", "sample_losses", "num_trained"], REQUIRED), {}
    ),
    "PackingCollator": (
        {"max_length": REQUIRED},
        {"pad_id": REQUIRED, "packed": True, "ignore_index": -100, "pad_to_multiple_of": None, "oversize": "error",
         "padding_side": "right"},
    ),
    "check_gradients": (
        {"loss_fn": REQUIRED, **BATCH},
        {"gradients": None, "num_positions": 64, "step": 1e-5, "rtol": 1e-4, "atol": 1e-6, "seed": 0},
    ),
    "closed_form_gradients": ({**BATCH, "loss": REQUIRED}, SETTINGS),
    "compute_loss": ({**BATCH, "loss": REQUIRED}, SETTINGS),
    "diagnose_first_step": (BATCH, {"tolerance": 0.02, "at_temperatures": None}),
    "dpo_loss": (BATCH, {"beta": 0.1, "pairs": None, "normalizer": None}),
    "gather_logprobs": ({"logits": REQUIRED, "targets": REQUIRED}, {"temperature": 1.0}),
    "loss_gradients": ({"loss_fn": REQUIRED, **BATCH}, {}),
    "packed_logprobs": ({"model": REQUIRED, "batch": REQUIRED}, {}),
    "policy_diagnostics": (BATCH, {"clip_low": 0.8, "clip_high": 1.2}),
    "target_logprobs": ({"model": REQUIRED, "samples": REQUIRED}, {"temperature": 1.0, "batch_tokens": 8192}),
    "unpack_tensors": (
        {"per_token": REQUIRED, "batch": REQUIRED}, {"shifted": None, "pad_to_multiple_of": None}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_are_called_as_the_page_says(name):
    parameters = inspect.signature(getattr(training, name)).parameters.values()
    positional = {item.name: item.default for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD}
    keyword = {item.name: item.default for item in parameters if item.kind is item.KEYWORD_ONLY}
    assert (list(positional.items()), keyword) == (list(SIGNATURES[name][0].items()), SIGNATURES[name][1])


def test_every_name_resolves_is_documented_and_stands_in_order():
    assert training.__all__ == sorted(training.__all__) == dir(training)
    assert set(training.__all__) == set(training._HOMES) == set(SIGNATURES)
    for name in training.__all__:
        assert inspect.getdoc(getattr(training, name))
        assert getattr(training, name).__module__ == f"samplekit.training.{training._HOMES[name]}"
    with pytest.raises(AttributeError, match="no attribute 'compute_losses'"):
        _ = training.compute_losses


@pytest.mark.parametrize("name", ["DpoOutput", "FirstStep", "LossOutput"])
def test_an_output_has_the_fields_that_it_is_made_of_and_no_others(name):
    assert list(getattr(training, name).__dataclass_fields__) == list(SIGNATURES[name][0])
