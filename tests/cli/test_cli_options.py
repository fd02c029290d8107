"""Every option of every command says what it is, and what it is read from where it is not given."""

import click
import pytest

from samplekit.cli.main import samplekit
from samplekit.wire.names import ENV_BASE_URL

COMMANDS = dict(sorted(samplekit.commands.items()))
OPTIONS = [
    (name, parameter)
    for name, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter, click.Option)
]


def test_all_commands_are_walked():
    assert {"build", "pack", "serve", "show", "submit", "template", "validate"} <= set(COMMANDS)
    assert len(OPTIONS) > 40


@pytest.mark.parametrize(("command", "option"), OPTIONS, ids=[f"{name} {option.opts[0]}" for name, option in OPTIONS])
def test_an_option_has_a_help_text(command, option):
    del command
    assert option.help
    assert option.help.strip().endswith((".", ")"))


def test_the_variable_that_names_the_service_is_shown_and_read(service, run, samples, tmp_path, monkeypatch):
    assert f"env var: {ENV_BASE_URL}" in " ".join(run("submit", "--help")[1].split())
    monkeypatch.setenv(ENV_BASE_URL, "https://service.example")
    for given in ([], ["--base-url", "https://service.example"]):
        folder = tmp_path / f"run-{len(given)}"
        code, _, said = run(
            "submit", samples, "-m", "samplekit/tiny", "--run-dir", folder, "--template", "none", *given
        )
        assert (code, "on https://service.example" in said) == (0, True), said
