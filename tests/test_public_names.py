"""The public surface: which names there are, and how each is called, held to the project's page of signatures."""

import inspect

import pytest

import samplekit

REQUIRED = inspect.Parameter.empty
EVERYTHING_BUILT_SO_FAR = {
    "ChatTemplate", "Completion", "EncodedText", "Finding", "Group", "ModelInput", "Report", "Sample", "SampleBuilder",
    "BuildResult", "Skipped", "TemplateReport", "TensorData", "Turn", "build_chat_samples", "build_sample", "check",
    "labels_from_mask", "read_chats", "read_samples", "write_samples",
    "CISPO", "CrossEntropy", "DPPO", "DRO", "GRPO", "ImportanceSampling", "PPO",
    "AlignmentError", "ConnectionFailedError", "FileFormatError", "LossInputError", "MissingExtraError", "OperationError",
    "OperationFailedError", "OperationTimeoutError", "PackingError", "PrefixMismatchError", "SampleError",
    "SamplekitError", "ServiceError", "StatusError", "TemplateError",
    "SampleList", "Step", "Trajectory", "build_grpo_samples", "build_trajectory_samples", "group_advantages",
    "group_from_openai", "group_from_vllm", "groups_from_openai", "groups_from_together",
    "EncodingDrift", "encoding_drift", "group_metrics", "rollout_metrics",
    "FLUSH", "SampleBatch", "batch", "unpack", "PackedRecord", "Plan", "Record", "StreamingPacker", "balance", "pack", "plan_packing",
    "__version__",
}  # fmt: skip

# name: (positional or keyword parameters, keyword-only parameters), each with its default; a later issue adds its rows.
SIGNATURES = {
    "TensorData": ({"data": REQUIRED, "dtype": REQUIRED}, {}),
    "ModelInput": ({"chunks": REQUIRED}, {}),
    "ModelInput.from_tokens": ({"ids": REQUIRED}, {}),
    "EncodedText": ({"tokens": REQUIRED}, {}),
    "Sample": ({"model_input": REQUIRED, "loss_fn_inputs": REQUIRED, "routed_experts_key": None, "info": {}}, {}),
    "Sample.to_wire": ({"self": REQUIRED}, {}),
    "Sample.to_json": ({"self": REQUIRED}, {}),
    "Sample.from_wire": ({"mapping": REQUIRED}, {}),
    "Sample.with_reference_logprobs": ({"self": REQUIRED, "values": REQUIRED}, {}),
    "build_sample": (
        {"tokens": REQUIRED, "loss_mask": REQUIRED},
        {"advantages": None, "logprobs": None, "reference_logprobs": None, "extra": None, "routed_experts_key": None,
         "max_length": None, "truncation": "right", "info": None},
    ),
    "ChatTemplate": (
        {"tokenizer": REQUIRED},
        {"stop_tokens": None, "thinking": "as_rendered", "after_stop": "drop", "system_slot": "error", "sanitize": False,
         "train_tool_calls": True, "clock": None, "template_kwargs": REQUIRED},
    ),
    "ChatTemplate.load": ({"name_or_path": REQUIRED}, {"options": REQUIRED}),
    "ChatTemplate.prompt": ({"self": REQUIRED, "messages": REQUIRED, "tools": None}, {"continue_final": False}),
    "ChatTemplate.turns": (
        {"self": REQUIRED, "messages": REQUIRED, "tools": None}, {"train_on": "all", "prompts": None},
    ),
    "ChatTemplate.samples": (
        {"self": REQUIRED, "messages": REQUIRED, "tools": None},
        {"train_on": "all", "merge": False, "max_length": None, "truncation": "error"},
    ),
    "ChatTemplate.report": ({"self": REQUIRED}, {}),
    "ChatTemplate.decode": ({"self": REQUIRED, "ids": REQUIRED}, {}),
    "ChatTemplate.encode": ({"self": REQUIRED, "text": REQUIRED}, {}),
    "build_chat_samples": (
        {"messages": REQUIRED, "tokenizer": REQUIRED, "tools": None}, {"options": REQUIRED},
    ),
    "SampleBuilder": (
        {"template": REQUIRED},
        {"on_error": "raise", "train_on": "all", "merge": False, "max_length": None, "truncation": "error"},
    ),
    "SampleBuilder.build": ({"self": REQUIRED, "rows": REQUIRED}, {}),
    "SampleBuilder.__call__": ({"self": REQUIRED, "columns": REQUIRED}, {}),
    "Completion": (
        {"tokens": REQUIRED, "logprobs": REQUIRED}, {"reward": None, "stop_reason": None, "routed_experts_key": None},
    ),
    "Group": ({"prompt": REQUIRED, "completions": REQUIRED}, {"id": None}),
    "Group.with_rewards": ({"self": REQUIRED, "fn_or_sequence": REQUIRED}, {}),
    "Step": ({"prompt": REQUIRED, "completion": REQUIRED}, {}),
    "Trajectory": ({"steps": REQUIRED}, {"reward": None, "group": None}),
    "group_advantages": (
        {"rewards": REQUIRED, "groups": None}, {"scale": "std", "baseline": "mean", "ddof": 1, "floor": 1e-6},
    ),
    "build_grpo_samples": (
        {"groups": REQUIRED},
        {"scale": "std", "baseline": "mean", "drop_degenerate": True, "overlong": "keep", "max_length": None},
    ),
    "build_trajectory_samples": (
        {"trajectories": REQUIRED},
        {"advantages": None, "merge": True, "scale": "std", "baseline": "mean", "drop_degenerate": True,
         "max_length": None},
    ),
    "groups_from_together": ({"result": REQUIRED, "prompts": REQUIRED}, {"ids": None}),
    "group_from_openai": ({"response": REQUIRED, "prompt": None}, {"id": None}),
    "groups_from_openai": ({"response": REQUIRED, "num_samples": REQUIRED, "prompts": None}, {"ids": None}),
    "group_from_vllm": ({"output": REQUIRED}, {"id": None}),
    "encoding_drift": ({"text": REQUIRED, "ids": REQUIRED, "tokenizer": REQUIRED}, {}),
    "rollout_metrics": ({"groups": REQUIRED}, {}),
    "group_metrics": ({"groups": REQUIRED}, {}),
    "CrossEntropy": ({}, {}),
    "ImportanceSampling": ({}, {}),
    "PPO": ({"clip_low": 0.8, "clip_high": 1.2}, {}),
    "GRPO": (
        {"clip_low": 0.8, "clip_high": 1.2, "beta": 0.0, "aggregation": "fixed_horizon", "ratio": "token"}, {},
    ),
    "CISPO": ({"clip_low": 0.0, "clip_high": 4.0}, {}),
    "DPPO": ({"delta_low": 0.15, "delta_high": 0.15}, {}),
    "DRO": ({"beta": REQUIRED}, {}),
    "GRPO.to_wire": ({"self": REQUIRED}, {}),
    "GRPO.required_inputs": ({"self": REQUIRED}, {}),
    "GRPO.optional_inputs": ({"self": REQUIRED}, {}),
    "check": (
        {"samples": REQUIRED},
        {"loss": None, "vocab_size": None, "max_length": None, "expected_share": None, "allow": ()},
    ),
    "Report.raise_for_errors": ({"self": REQUIRED}, {}),
    "Report.to_dict": ({"self": REQUIRED}, {}),
    "Finding": ({"code": REQUIRED, "path": REQUIRED, "message": REQUIRED}, {}),
    "Record": ({"tokens": REQUIRED, "loss_mask": None}, {"id": None, "padding_length": 0, "per_token": REQUIRED}),
    "Record.from_sample": ({"sample": REQUIRED}, {}),
    "plan_packing": (
        {"lengths": REQUIRED, "max_length": REQUIRED},
        {"strategy": "best", "seed": None, "max_items": None, "groups": None},
    ),
    "pack": (
        {"records": REQUIRED, "max_length": REQUIRED},
        {"pad_id": REQUIRED, "strategy": "best", "oversize": "error", "seed": None},
    ),
    "balance": ({"workloads": REQUIRED, "num_bins": REQUIRED}, {"equal_size": False}),
    "StreamingPacker": ({"max_length": REQUIRED}, {"pad_id": REQUIRED, "num_open": 64}),
    "StreamingPacker.add": ({"self": REQUIRED, "record": REQUIRED}, {}),
    "StreamingPacker.flush": ({"self": REQUIRED}, {}),
    "unpack": ({"per_token": REQUIRED, "batch": REQUIRED}, {}),
    "batch": ({"records": REQUIRED, "microbatch_size": REQUIRED}, {"drop_last": True}),
    "SampleBatch.to_framework": (
        {"self": REQUIRED, "framework": REQUIRED}, {"mask_boundaries": True, "pad_to_multiple_of": None},
    ),
    "SampleBatch.to_training": (
        {"self": REQUIRED},
        {"tokens_field": "auto", "return_labels": False, "ignore_index": -100, "dtype": "auto", "extra_fields": (),
         "rename_fields": None, "exclude_fields": (), "flatten": False, "return_num_valid_tokens": False,
         "return_loss_mask": False, "return_cu_seqlens": False, "return_padding_mask": False, "eos_mask_loss": False,
         "eos_token_id": None, "position_mode": "preserve"},
    ),
    "labels_from_mask": ({"tokens": REQUIRED, "loss_mask": REQUIRED}, {"ignore_index": -100}),
    "read_chats": ({"source": REQUIRED}, {}),
    "read_samples": ({"path": REQUIRED}, {}),
    "write_samples": ({"path": REQUIRED, "samples": REQUIRED}, {"lock": None}),
}  # fmt: skip

ATTRIBUTES = {
    "ModelInput": {"tokens", "length"},
    "Sample": {"tokens", "loss_mask", "length", "num_trained"},
    "SampleList": {"dropped"},
    "Plan": {"num_rows", "utilization"},
}


def found(dotted):
    value = samplekit
    for name in dotted.split("."):
        value = inspect.getattr_static(value, name) if inspect.isclass(value) else getattr(value, name)
    return value.__func__ if isinstance(value, classmethod) else value


def called(value):
    parameters = inspect.signature(value).parameters.values()
    positional = {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "cls"}
    keyword = {p.name: p.default for p in parameters if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)}
    return positional, keyword


@pytest.mark.parametrize("dotted", SIGNATURES)
def test_names_are_called_as_the_page_of_signatures_says(dotted):
    positional, keyword = called(found(dotted))
    expected_positional, expected_keyword = SIGNATURES[dotted]
    assert list(positional.items()) == list(expected_positional.items())
    assert {name: keyword.get(name) for name in expected_keyword} == expected_keyword
    added = {name: default for name, default in keyword.items() if name not in expected_keyword}
    assert REQUIRED not in added.values()  # more may be offered, never asked for


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_classes_have_the_attributes_the_page_of_signatures_names(name):
    assert ATTRIBUTES[name] <= set(dir(getattr(samplekit, name)))


def test_all_is_sorted_and_equals_what_is_visible():
    assert samplekit.__all__ == sorted(samplekit.__all__)
    assert samplekit.__all__ == dir(samplekit)
    assert set(samplekit.__all__) == EVERYTHING_BUILT_SO_FAR
    starred = {}
    exec("from samplekit import *", starred)
    assert set(starred) - {"__builtins__"} == set(samplekit.__all__)


def test_every_name_resolves_to_the_object_its_home_calls_by_that_name():
    for name in set(samplekit.__all__) - {"__version__"}:
        value = getattr(samplekit, name)
        assert value.__name__ == name
        assert value.__module__.split(".")[:2] == ["samplekit", samplekit._HOME_OF[name]]
        assert getattr(samplekit, name) is value


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'build_samples'"):
        _ = samplekit.build_samples
    assert not hasattr(samplekit, "_hidden")


def test_every_public_name_is_documented():
    for name in set(samplekit.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(samplekit, name)), name


def test_type_checkers_see_the_same_names_as_users():
    import ast
    from pathlib import Path

    tree = ast.parse(Path(samplekit.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.asname or alias.name for node in guarded.body for alias in node.names}
    assert imported == set(samplekit.__all__) - {"__version__"}


@pytest.mark.parametrize("dotted", [dotted for dotted in SIGNATURES if dotted[0].islower()])
def test_functions_take_at_most_8_parameters_by_position(dotted):
    positional, _ = SIGNATURES[dotted]
    assert len(positional) <= 8
