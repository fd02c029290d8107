"""`samplekit template`: what a user runs first with a new model."""

import json
import shutil
from pathlib import Path

import pytest

import samplekit

TINY = Path(samplekit.__file__).parent / "models" / "tiny"


@pytest.fixture
def model(tmp_path):
    """Make a model folder with another chat template."""

    def make(source):
        folder = tmp_path / "model"
        shutil.copytree(TINY, folder)
        (folder / "chat_template.jinja").write_text(source)
        return folder

    return make


LOOP = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
OPEN = (
    LOOP + "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}{% endif %}"
)


def test_a_model_that_fits_is_reported_and_exits_with_0(run):
    code, shown, _ = run("template", "samplekit/tiny")
    assert code == 0
    for words in ("samplekit/tiny", "system slot", "closes a reply", "'<|im_end|>'", "plain chat", "what to do"):
        assert words in shown
    assert "nothing: the defaults fit" in shown


def test_the_same_report_is_there_for_machines(run):
    code, shown, _ = run("template", "samplekit/tiny", "--json")
    report = json.loads(shown)
    assert code == 0
    assert report["builds"] is True
    assert report["stops"]["closing"] == "<|im_end|>"
    assert {verdict["kind"] for verdict in report["verdicts"]} >= {"plain chat", "tool flow", "trailing user"}


def test_a_model_whose_plain_chat_does_not_build_exits_with_1_and_says_what_does(run, model):
    folder = model(OPEN)
    code, shown, _ = run("template", folder)
    assert code == 1
    assert "open_think_without_reasoning" in shown
    assert "thinking=False" in shown
    code, shown, _ = run("template", folder, "--json")
    assert code == 1
    assert json.loads(shown)["verdicts"][0]["remedy"] == "thinking=False"


@pytest.mark.parametrize("setting", [["--thinking", "off"], ["--template-kwarg", "enable_thinking=false"]])
def test_the_setting_it_names_makes_it_fit(run, model, setting):
    code, shown, _ = run("template", model(OPEN), *setting, "--json")
    assert code == 0
    assert json.loads(shown)["builds"] is True


def test_markup_of_rich_in_a_template_is_shown_as_it_stands(run, model):
    _, shown, _ = run("template", model(LOOP.replace("<|im_end|>\n", "<|im_end|>[bold]x[/]")))
    assert "[bold]x[/]" in shown


@pytest.mark.parametrize("asked", [["--json"], []])
def test_a_model_that_is_not_there_is_an_error_in_one_line(run, tmp_path, asked):
    code, shown, errors = run("template", tmp_path / "none", *asked)
    assert (code, shown) == (1, "")
    assert str(tmp_path / "none") in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_template_that_does_not_compile_is_an_error_in_one_line(run, model):
    code, _, errors = run("template", model("{% for %}"))
    assert code == 1
    assert "does not compile" in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize("pair", ["enable_thinking", "=1", "a-b=1"])
def test_a_setting_without_a_name_is_a_wrong_call(run, pair):
    code, _, errors = run("template", "samplekit/tiny", "--template-kwarg", pair)
    assert code == 2
    assert "NAME=VALUE" in errors


def test_a_setting_the_template_does_not_read_is_refused(run):
    code, _, errors = run("template", "samplekit/tiny", "--template-kwarg", "enable_thinkin=false")
    assert code == 1
    assert "enable_thinking" in errors


def test_help_has_an_example(run):
    code, shown, _ = run("template", "--help")
    assert code == 0
    assert "samplekit template samplekit/tiny" in shown
