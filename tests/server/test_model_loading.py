"""What cannot be loaded is named, with what to do."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from samplekit import SampleError
from samplekit.chat.load import packaged_model
from samplekit.server import load_model


@pytest.fixture
def folder(tmp_path):
    """A whole model, small enough to break."""
    config = LlamaConfig(vocab_size=19, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                         eos_token_id=1)  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["nope/nope", "gpt2-nope", "a b c", "/nowhere/at/all", "./nowhere", ""])
def test_a_model_that_is_not_there_is_named(name):
    with pytest.raises(SampleError) as caught:
        load_model(name)
    assert repr(name) in str(caught.value)
    assert "folder" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("broken", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_a_folder_that_is_not_whole_is_named(folder, broken, how):
    (folder / broken).unlink()
    if how == "garbage":
        (folder / broken).write_text("{")
    with pytest.raises(SampleError) as caught:
        load_model(str(folder))
    assert str(folder) in str(caught.value)
    assert "weights" in str(caught.value)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(SampleError, match="cannot be loaded"):
        load_model(str(tmp_path))


def test_stops_are_those_of_the_generation_config_and_the_model(folder):
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 7]}))
    assert load_model(str(folder)).stop_ids == {1, 4, 7}


def test_a_broken_generation_config_names_its_file(folder):
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(SampleError, match=r"generation_config\.json"):
        load_model(str(folder))


def test_the_packaged_model_has_no_weights_of_its_own_and_one_seed():
    assert not list(packaged_model("samplekit/tiny").glob("*.safetensors"))
    first, second = (load_model().module.get_input_embeddings().weight for _ in range(2))
    assert torch.equal(first, second)
