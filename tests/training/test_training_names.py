"""The public names of samplekit.training, as the page of signatures gives them."""

import inspect

import pytest

import samplekit.training as training

REQUIRED = inspect.Parameter.empty
SETTINGS = {"horizon": None, "normalizer": None, "sequence_mean": "means", "kl": "k3"}
BATCH = {"policy_logprobs": REQUIRED, "samples": REQUIRED}
SIGNATURES = {
    "target_logprobs": ({"model": REQUIRED, "samples": REQUIRED}, {"temperature": 1.0, "batch_tokens": 8192}),
    "compute_loss": ({**BATCH, "loss": REQUIRED}, SETTINGS),
    "closed_form_gradients": ({**BATCH, "loss": REQUIRED}, SETTINGS),
    "loss_gradients": ({"loss_fn": REQUIRED, **BATCH}, {}),
    "dpo_loss": (BATCH, {"beta": 0.1, "pairs": None, "normalizer": None}),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_are_called_as_the_page_says(name):
    parameters = inspect.signature(getattr(training, name)).parameters.values()
    positional = {item.name: item.default for item in parameters if item.kind is item.POSITIONAL_OR_KEYWORD}
    keyword = {item.name: item.default for item in parameters if item.kind is item.KEYWORD_ONLY}
    assert (list(positional.items()), keyword) == (list(SIGNATURES[name][0].items()), SIGNATURES[name][1])


def test_every_name_resolves_is_documented_and_stands_in_order():
    assert training.__all__ == sorted(training.__all__) == dir(training)
    assert set(training.__all__) == set(training._HOMES) >= set(SIGNATURES)
    for name in training.__all__:
        assert inspect.getdoc(getattr(training, name))
        assert getattr(training, name).__module__ == f"samplekit.training.{training._HOMES[name]}"
    with pytest.raises(AttributeError, match="no attribute 'compute_losses'"):
        _ = training.compute_losses


def test_an_output_has_what_the_page_names():
    assert {"loss", "metrics", "token_losses"} <= set(training.LossOutput.__dataclass_fields__)
