"""SampleBuilder: every row becomes samples, a reason, or an error."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest
import real_tokenizers as real
from real_tokenizers import toy_template

from samplekit.chat import ChatTemplate, SampleBuilder, Skipped
from samplekit.errors import AlignmentError, TemplateError

GOOD = {"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "q"}], "source": "good:1"}
NO_REPLY = {"messages": [{"role": "user", "content": "p"}], "source": "bad:2"}
CONTROL = {"messages": [{"role": "user", "content": "a<e>b"}, {"role": "assistant", "content": "q"}]}
LONG = {"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "q" * 50}], "source": "long:4"}
ROWS = [GOOD, NO_REPLY, CONTROL, LONG, {"text": "no messages"}, None, GOOD]


def test_skipped_rows_are_named_and_counted():
    built = SampleBuilder(toy_template("T-PLAIN"), on_error="skip", max_length=20).build(ROWS)
    assert [skipped.source for skipped in built.skipped] == ["bad:2", "rows[2]", "rows[4]", "rows[5]", "long:4"]
    assert repr(built).startswith("BuildResult(2 samples, 5 skipped, stats={'num_rows': 7")
    codes = {skipped.source: skipped.code for skipped in built.skipped}
    assert codes == {
        "bad:2": "no_final_reply",
        "rows[2]": "control_token_in_content",
        "long:4": "too_long",
        "rows[4]": "invalid_format",
        "rows[5]": "invalid_format",
    }
    assert all(isinstance(skipped, Skipped) and skipped.message.startswith(skipped.source) for skipped in built.skipped)
    assert built.stats == {
        "num_rows": 7,
        "num_samples": 2,
        "num_skipped": 5,
        "num_dropped": 0,
        "num_cut": 0,
        "num_context_replies": 0,
        "num_tokens": 10,
        "num_trained": 4,
        "trained_share": 0.4,
        "modes": {"strict": 2},
        "codes": {"no_final_reply": 1, "control_token_in_content": 1, "invalid_format": 2, "too_long": 1},
    }


@pytest.mark.parametrize(("row", "source"), [(NO_REPLY, "bad:2"), (CONTROL, r"rows\[1\]"), (None, r"rows\[1\]")])
def test_the_first_error_names_its_row(row, source):
    with pytest.raises(TemplateError, match=rf"^{source}: ") as caught:
        SampleBuilder(toy_template("T-PLAIN")).build([GOOD, row])
    assert caught.value.code
    with pytest.raises(AlignmentError, match=r"^long:4: message 1"):
        SampleBuilder(toy_template("T-PLAIN"), max_length=20).build([GOOD, LONG])


def test_turns_dropped_for_their_length_are_named():
    row = {"messages": [*GOOD["messages"], *LONG["messages"]], "source": "mixed:1"}
    built = SampleBuilder(toy_template("T-PLAIN"), max_length=20, truncation="drop").build([row])
    assert len(built.samples) == 1
    assert [(skipped.source, skipped.code) for skipped in built.skipped] == [("mixed:1", "too_long")]
    assert "message 3" in built.skipped[0].message
    assert (built.stats["num_dropped"], built.stats["num_skipped"]) == (1, 0)


def test_samples_remember_their_source_and_turn():
    built = SampleBuilder(toy_template("T-PLAIN")).build([GOOD, {"messages": GOOD["messages"] * 2}])
    assert [(sample.info["source"], sample.info["message_index"]) for sample in built.samples] == [
        ("good:1", 1),
        ("rows[1]", 1),
        ("rows[1]", 3),
    ]


def test_rows_may_be_an_iterator_and_progress_counts_them():
    seen = []
    built = SampleBuilder(toy_template("T-PLAIN")).build((GOOD for _ in range(1200)), progress=seen.append)
    assert built.stats["num_samples"] == 1200
    assert seen[-1] == 1200
    assert seen == sorted(seen)
    assert len(seen) > 1


def test_no_rows_give_no_samples():
    built = SampleBuilder(toy_template("T-PLAIN")).build([])
    assert (built.samples, built.skipped, built.stats["trained_share"]) == ([], [], 0.0)


def test_columns_in_and_columns_out_as_datasets_map_calls_it(caplog):
    builder = SampleBuilder(toy_template("T-TOOLS"), on_error="skip")
    columns = {
        "messages": [GOOD["messages"], NO_REPLY["messages"], GOOD["messages"]],
        "tools": [None, None, [{"type": "function", "function": {"name": "f"}}]],
        "source": ["a", "b", None],
        "other": [1, 2, 3],
    }
    with caplog.at_level(logging.WARNING):
        result = builder(columns)
    assert set(result) == {"tokens", "loss_mask", "info"}
    assert [len(column) for column in result.values()] == [2, 2, 2]
    assert [info["source"] for info in result["info"]] == ["a", "rows[2]"]
    assert "skipped b" in caplog.text


def test_a_leading_reply_is_named_as_context_and_counted():
    template = toy_template("T-PLAIN")
    row = {"messages": [{"role": "assistant", "content": "w"}, *GOOD["messages"]]}
    built = SampleBuilder(template).build([row, GOOD])
    assert [sample.info.get("context_only") for sample in built.samples] == [[0], None]
    assert built.stats["num_context_replies"] == 1
    for quiet in ({"weight": 0}, {"train": False}):
        (sample,) = template.samples([{**row["messages"][0], **quiet}, *GOOD["messages"]])
        assert "context_only" not in sample.info
    (sample,) = template.samples(row["messages"], train_on="last")
    assert "context_only" not in sample.info


class _Frame:
    """What of a DataFrame is read: ``values`` is no method there."""

    values = np.empty((2, 2), dtype=object)

    def __init__(self, columns):
        self._columns = columns

    def keys(self):
        return list(self._columns)

    def __getitem__(self, name):
        return np.array([*self._columns[name], None], dtype=object)[:-1]


class _Table:
    def __init__(self, columns):
        self.to_pydict = lambda: columns


@pytest.mark.parametrize("kind", [dict, _Frame, _Table, "pandas", "pyarrow"])
def test_every_kind_of_table_gives_the_same_columns(kind):
    columns = {"messages": [GOOD["messages"], GOOD["messages"]], "source": ["a", None]}
    if kind == "pandas":
        kind = pytest.importorskip("pandas").DataFrame
    elif kind == "pyarrow":
        kind = pytest.importorskip("pyarrow").table
    builder = SampleBuilder(toy_template("T-PLAIN"))
    assert builder(kind(columns)) == builder(columns)
    assert [info["source"] for info in builder(columns)["info"]] == ["a", "rows[1]"]


def test_a_missing_value_of_pandas_is_none():
    builder = SampleBuilder(toy_template("T-PLAIN"))
    columns = {"messages": [GOOD["messages"]], "tools": [float("nan")], "source": [float("nan")]}
    assert builder(columns)["info"][0]["source"] == "rows[0]"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (None, "the columns are None"),
        (5, "the columns are 5"),
        ([GOOD], "expected a table"),
        ({"messages": None}, "the column messages is None"),
        ({"messages": [1, 2], "tools": [None]}, "messages holds 2, tools holds 1"),
    ],
)
def test_what_is_no_table_is_refused(columns, words):
    with pytest.raises(TemplateError) as caught:
        SampleBuilder(toy_template("T-PLAIN"))(columns)
    assert words in str(caught.value)


@pytest.mark.parametrize("rows", [None, 5, "abc", GOOD])
def test_what_is_no_rows_is_refused(rows):
    with pytest.raises(TemplateError, match=r"^rows is ") as caught:
        SampleBuilder(toy_template("T-PLAIN"), on_error="skip").build(rows)
    assert caught.value.code == "invalid_format"


def test_builders_and_templates_pickle_and_give_the_same():
    template = ChatTemplate(real.qwen3(), thinking=False, stop_tokens=["<|endoftext|>"])
    builder = SampleBuilder(template, on_error="skip", merge=True)
    again = pickle.loads(pickle.dumps(builder))
    assert again.build([GOOD]).samples == builder.build([GOOD]).samples
    assert again.template.stop_strings == template.stop_strings
    assert again.template.fingerprint == template.fingerprint


@pytest.mark.parametrize(
    "options", [{"on_error": "ignore"}, {"max_length": 0}, {"truncation": "no"}, {"train_on": "x"}]
)
def test_an_option_that_means_nothing_is_refused(options):
    with pytest.raises(TemplateError) as caught:
        SampleBuilder(toy_template("T-PLAIN"), **options)
    assert caught.value.code == "invalid_option"
