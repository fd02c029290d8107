"""TRL's own SFTTrainer over our collator: its loss and its step are those of compute_loss on the same samples."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

import samplekit as sk
from samplekit.training import PackingCollator, compute_loss, target_logprobs

pytestmark = pytest.mark.filterwarnings("ignore")  # what the trainers and their libraries warn of is theirs
VOCAB, END = 40, 2  # the pad token is the end token
LENGTHS = (7, 3, 12, 5)


def tiny_model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, bos_token_id=1, eos_token_id=END, pad_token_id=END,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def samples():
    """Every sample ends in the end token and holds one inside; from its third token on it trains."""
    rng = np.random.default_rng(0)
    made = []
    for length in LENGTHS:
        tokens = rng.integers(3, VOCAB, length)
        tokens[length // 2] = tokens[-1] = END
        made.append(sk.build_sample(tokens, [0, 0] + [1] * (length - 2)))
    return made


def dataset(given, column):
    """The samples as TRL's datasets spell them."""
    rows = []
    for sample in given:
        mask = sample.loss_mask.astype(int).tolist()
        labels = sk.labels_from_mask(sample.tokens, mask).tolist()
        rows.append({"input_ids": sample.tokens.tolist(), column: labels if column == "labels" else mask})
    return Dataset.from_list(rows)


def trainer_for(folder, given, column, *, packed, micro_batch=2):
    arguments = SFTConfig(
        str(folder), per_device_train_batch_size=micro_batch, gradient_accumulation_steps=len(given) // micro_batch,
        max_steps=1, learning_rate=0.5, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0.0, weight_decay=0.0,
        report_to=[], save_strategy="no", remove_unused_columns=False, use_cpu=True, disable_tqdm=True, bf16=False,
        train_sampling_strategy="sequential", logging_steps=1, gradient_checkpointing=False, max_length=None,
    )  # fmt: skip
    return SFTTrainer(
        tiny_model(), arguments, train_dataset=dataset(given, column), data_collator=PackingCollator(16, pad_id=END, packed=packed),
        processing_class=sk.ChatTemplate.load("samplekit/tiny").tokenizer,
    )  # fmt: skip


@pytest.mark.parametrize("column", ["labels", "completion_mask", "loss_mask"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("micro_batch", [1, 2])
def test_a_step_of_the_sft_trainer_is_that_of_the_mean_over_all_trained_tokens(tmp_path, packed, column, micro_batch):
    """num_items_in_batch is the count of tokens that train in the whole step, however it is cut into micro-batches."""
    given = samples()
    trainer = trainer_for(tmp_path, given, column, packed=packed, micro_batch=micro_batch)
    counts = []
    plain_loss = trainer.compute_loss
    trainer.compute_loss = lambda *positional, **named: (
        counts.append(int(named["num_items_in_batch"])) or plain_loss(*positional, **named)
    )
    trainer.train()
    twin = tiny_model()
    before = [parameter.detach().clone() for parameter in twin.parameters()]
    num_trained = sum(sample.num_trained for sample in given)
    expected = compute_loss(target_logprobs(twin, given), given, sk.CrossEntropy(), normalizer=num_trained).loss
    expected.backward()
    assert counts == [num_trained] * (len(given) // micro_batch)
    assert num_trained == sum(LENGTHS) - 2 * len(LENGTHS)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses == pytest.approx([float(expected.detach())], rel=1e-5)
    for parameter, start, plain in zip(trainer.model.parameters(), before, twin.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach(), start - 0.5 * plain.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("packed", [True, False])
def test_the_loss_of_one_batch_is_that_of_compute_loss(tmp_path, packed):
    given = samples()
    trainer = trainer_for(tmp_path, given, "completion_mask", packed=packed, micro_batch=4)
    (batch,) = trainer.get_train_dataloader()
    num_trained = sum(sample.num_trained for sample in given)
    assert (batch["labels"] != -100).sum() == num_trained
    model = trainer.model
    for named in ({"num_items_in_batch": torch.tensor(num_trained)}, {}):
        found = trainer.compute_loss(model, dict(batch), **named)
        plain = compute_loss(target_logprobs(model, given), given, sk.CrossEntropy(), normalizer=num_trained).loss
        torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
