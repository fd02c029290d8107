"""Packed rows give each document the numbers it has alone, and the collator feeds them to the trainers as they are."""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import samplekit as sk
from samplekit.batching import block_diagonal_mask
from samplekit.training import PackingCollator, compute_loss, packed_logprobs, target_logprobs

VOCAB = 40
LENGTHS = (7, 1, 5, 12, 2, 9, 3)


def tiny_gpt2(attention):
    """Its eager attention takes the softmax in float64; that of Llama in transformers rounds it to float32."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=64, attn_implementation=attention,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return GPT2LMHeadModel(config).double().eval()


def tiny_model(attention="sdpa"):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, attn_implementation=attention,
        bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).double().eval()


def records(lengths=LENGTHS):
    rng = np.random.default_rng(0)
    return [sk.Record(rng.integers(3, VOCAB, length), rng.random(length) < 0.7, id=f"d{length}") for length in lengths]


@pytest.mark.parametrize(("make", "attention"), [(tiny_model, "sdpa"), (tiny_gpt2, "sdpa"), (tiny_gpt2, "eager")])
@pytest.mark.parametrize("width", [12, 17, 64])
@torch.no_grad()
def test_packed_logits_are_those_of_each_document_alone(make, attention, width):
    model = make(attention)
    batch = sk.SampleBatch(sk.pack(records(), width, pad_id=2))
    logits = model(**batch.to_framework("hf")).logits[0]
    places = sk.unpack(torch.arange(len(logits)), batch)
    assert len(places) == len(LENGTHS)
    for document, rows in zip(batch.documents, places, strict=True):
        alone = model(input_ids=torch.from_numpy(document.tokens.copy())[None]).logits[0]
        assert (logits[torch.from_numpy(rows)] - alone).abs().max() < 1e-9


@torch.no_grad()
def test_a_2d_attention_mask_leaks_what_the_preset_and_the_block_mask_keep_apart():
    model = tiny_model()
    (row,) = sk.pack(records((7, 5)), 12, pad_id=2, strategy="next_fit")
    batch = sk.SampleBatch([row])
    arrays = batch.to_framework("hf")
    alone = model(input_ids=arrays["input_ids"][:, 7:]).logits[0]
    kept = model(**arrays).logits[0, 7:]
    cached = model(**{**arrays, "use_cache": True}).logits[0, 7:]  # a cache alone lets documents see each other
    assert (cached - alone).abs().max() > 1e-3
    leaked = model(**arrays, attention_mask=torch.ones(1, 12, dtype=torch.int64)).logits[0, 7:]
    assert (kept - alone).abs().max() < 1e-9
    assert (leaked - alone).abs().max() > 1e-3
    mask = torch.from_numpy(block_diagonal_mask(row.document_ids[None]))
    masked = model(
        input_ids=arrays["input_ids"], position_ids=arrays["position_ids"], attention_mask=mask
    ).logits[0, 7:]  # fmt: skip
    assert (masked - alone).abs().max() < 1e-9


LOSSES = [sk.CrossEntropy(), sk.GRPO(aggregation="token_mean"), sk.GRPO(aggregation="sequence_mean"), sk.DRO(beta=0.2)]


def samples():
    rng = np.random.default_rng(1)
    return [
        sk.build_sample(
            rng.integers(3, VOCAB, length), [0] + [1] * (length - 1), advantages=float(rng.normal()),
            logprobs=-rng.random(length),
        )
        for length in (7, 2, 5, 12, 9, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("split", [1, 2, 4])
def test_the_packed_loss_is_the_unpacked_one_however_micro_batches_are_cut(loss, split):
    model, given = tiny_model(), samples()
    by_sequence = getattr(loss, "aggregation", "") == "sequence_mean"
    normalizer = len(given) if by_sequence else sum(sample.num_trained for sample in given)
    plain = compute_loss(target_logprobs(model, given), given, loss, normalizer=normalizer)
    plain.loss.backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    total = 0.0
    rows = sk.pack([sk.Record.from_sample(sample) for sample in given], 13, pad_id=2)
    for batch in sk.batch(rows, split, drop_last=False):
        part = [document.to_sample() for document in batch.documents]
        found = compute_loss(packed_logprobs(model, batch), part, loss, normalizer=normalizer)
        found.loss.backward()
        total += float(found.loss.detach())
    assert abs(total - float(plain.loss.detach())) < 1e-12
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


def test_the_worked_loss_is_0_6_and_not_26_thirds_less():
    tokens = list(range(3, 29))
    mask = [0] * 23 + [1, 1, 1]
    sample = sk.build_sample(tokens, mask)
    (row,) = sk.pack([sk.Record.from_sample(sample)], 32, pad_id=2)
    logprobs = np.zeros(32)
    logprobs[22:25] = [-0.5, -1.0, -0.3]  # position i predicts token i + 1
    (values,) = sk.unpack(logprobs, sk.SampleBatch([row]))
    out = compute_loss([torch.from_numpy(values[:25])], [sample], sk.CrossEntropy())
    assert float(out.loss) == pytest.approx(1.8, abs=1e-12)
    assert float(out.loss) / out.num_trained == pytest.approx(0.600, abs=1e-12)
    assert (float(out.loss) / out.num_trained) / (float(out.loss) / 26) == pytest.approx(26 / 3)


def features():
    """Items whose last token, the end token, is also what pads."""
    return [
        {"input_ids": [5, 6, 7, 2], "labels": [-100, -100, 7, 2]},
        {"input_ids": [8, 2], "completion_mask": [0, 1]},
        {"input_ids": [9, 10, 2], "loss_mask": [1, 1, 1]},
    ]


def test_padded_where_the_pad_token_is_the_end_token():
    batch = PackingCollator(8, pad_id=2, packed=False)(features())
    assert batch["input_ids"].tolist() == [[5, 6, 7, 2], [8, 2, 2, 2], [9, 10, 2, 2]]
    assert batch["labels"].tolist() == [[-100, -100, 7, 2], [-100, 2, -100, -100], [-100, 10, 2, -100]]
    assert (batch["labels"][batch["attention_mask"] == 0] == -100).all()
    assert batch["attention_mask"].sum() == 9


def test_flat_where_the_pad_token_is_the_end_token():
    batch = PackingCollator(8, pad_id=2, pad_to_multiple_of=4)(features())
    assert batch["input_ids"].tolist() == [[5, 6, 7, 2, 8, 2, 9, 10, 2, 2, 2, 2]]
    assert batch["labels"].tolist() == [[-100, -100, 7, 2, -100, 2, -100, 10, 2, -100, -100, -100]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 1, 2]]
    assert batch["cu_seq_lens_q"].tolist() == batch["cu_seq_lens_k"].tolist() == [0, 4, 6, 9, 12]
    assert batch["cu_seq_lens_q"][-1] == batch["input_ids"].numel()
    assert batch["cu_seq_lens_q"].dtype == torch.int32
    assert (batch["max_length_q"], type(batch["max_length_k"])) == (4, int)
    assert "attention_mask" not in batch


def test_items_packed_before_keep_their_documents_and_padding_of_a_dataset_is_left_out():
    packed = {"input_ids": [5, 6, 7, 8], "seq_lengths": [2, 2]}
    padded = {"input_ids": [2, 2, 9, 10], "attention_mask": [0, 0, 1, 1]}
    batch = PackingCollator(8, pad_id=2)([packed, padded])
    assert batch["cu_seq_lens_q"].tolist() == [0, 2, 4, 6]
    assert batch["labels"].tolist() == [[-100, 6, -100, 8, -100, 10]]
    (row,) = sk.pack([[5, 6], [7, 8]], 5, pad_id=2)
    assert PackingCollator(8, pad_id=2)([row])["labels"].tolist() == [[-100, 6, -100, 8, -100]]


def test_items_that_are_too_long_are_named_or_cut():
    with pytest.raises(sk.PackingError, match=r"features\[1\] holds 3 tokens, max_length is 2"):
        PackingCollator(2, pad_id=0)([[1, 2], [1, 2, 3]])
    cut = PackingCollator(2, pad_id=0, oversize="truncate_left")([[1, 2, 3]])
    assert cut["input_ids"].tolist() == [[2, 3]]
    for options in ({"oversize": "drop"}, {"pad_id": -1}):
        with pytest.raises(sk.PackingError):
            PackingCollator(2, **{"pad_id": 0, **options})
    with pytest.raises(sk.PackingError, match="features is empty"):
        PackingCollator(2, pad_id=0)([])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.filterwarnings("ignore")  # what Trainer and its libraries warn of is theirs
def test_the_trainer_counts_what_trains_under_gradient_accumulation(tmp_path, packed):
    """One step over four micro-batches gives the gradient of the mean over all trained tokens of the step."""
    given = samples()[:4]
    data = [{"input_ids": s.tokens.tolist(), "loss_mask": s.loss_mask.tolist()} for s in given]
    model = tiny_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    arguments = TrainingArguments(
        tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=4, max_steps=1, learning_rate=0.5,
        optim="sgd", lr_scheduler_type="constant", max_grad_norm=0.0, weight_decay=0.0, report_to=[], save_strategy="no",
        remove_unused_columns=False, use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=data, data_collator=PackingCollator(16, pad_id=2, packed=packed)).train()
    twin = tiny_model()
    num_trained = sum(sample.num_trained for sample in given)
    compute_loss(target_logprobs(twin, given), given, sk.CrossEntropy(), normalizer=num_trained).loss.backward()
    for parameter, start, plain in zip(model.parameters(), before, twin.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach(), start - 0.5 * plain.grad, rtol=1e-5, atol=1e-7)
