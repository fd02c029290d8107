"""The error tree: its shape, and that every error survives pickling and copying whole."""

import copy
import inspect
import pickle

import pytest

import samplekit as sk
from samplekit import errors

TREE = {
    "SamplekitError": (Exception,),
    "SampleError": (sk.SamplekitError, ValueError),
    "AlignmentError": (sk.SampleError,),
    "TemplateError": (sk.SampleError,),
    "PrefixMismatchError": (sk.TemplateError,),
    "LossInputError": (sk.SampleError,),
    "FileFormatError": (sk.SampleError,),
    "PackingError": (sk.SamplekitError, ValueError),
    "ServiceError": (sk.SamplekitError,),
    "ConnectionFailedError": (sk.ServiceError, ConnectionError),
    "StatusError": (sk.ServiceError,),
    "OperationError": (sk.ServiceError,),
    "OperationFailedError": (sk.OperationError,),
    "OperationTimeoutError": (sk.OperationError, TimeoutError),
    "MissingExtraError": (sk.SamplekitError, ImportError),
}
FIELDS = {
    "TemplateError": {"code": "no_stop_token", "message_index": 3, "hint": "pass stop_tokens", "template": "qwen"},
    "PrefixMismatchError": {
        "index": 7, "prompt_context": "a", "full_context": "b", "code": "prefix_mismatch", "message_index": 1,
        "hint": "h", "template": "t",
    },
    "FileFormatError": {"path": "rows.jsonl", "line": 12},
    "StatusError": {"status": 409, "request_id": "r-1", "body": {"error": [1, None]}},
    "OperationError": {"operation_id": "op", "kind": "optim-step", "code": "X"},
    "OperationFailedError": {"operation_id": "op", "kind": "forward-backward", "code": None},
    "OperationTimeoutError": {"operation_id": "op", "kind": "sample", "code": None},
    "MissingExtraError": {"extra": "local"},
}  # fmt: skip


def made(name):
    return getattr(sk, name)("where, what, expected, remedy", **FIELDS.get(name, {}))


def test_the_tree_is_complete():
    classes = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert classes == set(TREE)


@pytest.mark.parametrize("name", TREE)
def test_every_class_stands_at_its_place_in_the_tree_and_says_what_it_means(name):
    cls = getattr(sk, name)
    assert cls.__bases__ == TREE[name]
    assert cls.__doc__
    assert issubclass(cls, sk.SamplekitError)
    assert name in errors.__doc__


@pytest.mark.parametrize("way", ["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize("name", TREE)
def test_every_error_survives_with_its_message_and_fields(name, way):
    error = made(name)
    error.add_note("seen in worker 3")
    error.added_later = "by a framework"
    ways = {"pickle": lambda e: pickle.loads(pickle.dumps(e)), "copy": copy.copy, "deepcopy": copy.deepcopy}
    other = ways[way](error)
    assert type(other) is type(error)
    assert other is not error
    assert str(other) == str(error) == "where, what, expected, remedy" == other.message
    assert other.args == error.args
    assert {field: getattr(other, field) for field in FIELDS.get(name, {})} == FIELDS.get(name, {})
    assert other.__notes__ == ["seen in worker 3"]
    assert other.added_later == "by a framework"


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_keywords_and_documented(name):
    cls = getattr(sk, name)
    with pytest.raises(TypeError):
        cls("message", *FIELDS[name].values())
    documented = "".join(parent.__doc__ or "" for parent in cls.__mro__ if issubclass(parent, sk.SamplekitError))
    for field in FIELDS[name]:
        assert f"{field}:" in documented


def test_errors_are_caught_as_the_builtin_kind_users_expect():
    for name, builtin in (
        ("AlignmentError", ValueError), ("PackingError", ValueError), ("ConnectionFailedError", OSError),
        ("OperationTimeoutError", TimeoutError), ("MissingExtraError", ImportError),
    ):  # fmt: skip
        with pytest.raises(builtin, match="where, what"):
            raise made(name)
