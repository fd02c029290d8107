"""`samplekit show`: a sample's text, in colour where it trains."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import click
from rich.panel import Panel
from rich.text import Text

from samplekit.chat import ChatTemplate
from samplekit.cli.screen import load_template, results
from samplekit.errors import SampleError, TemplateError
from samplekit.files import read_samples
from samplekit.sample import Sample
from samplekit.spans import sample_spans

# Escapes in data must not act on the terminal that shows it: each control character stands as its picture.
_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
_TRAINED, _CONTEXT = "bold green", "dim"


@click.command(short_help="Show samples as text, with what trains.")
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--model", "-m", required=True, help="The tokenizer the samples were built with.")
@click.option(
    "--first", type=click.IntRange(min=0), default=0, show_default=True, help="The first sample to show, from 0."
)
@click.option("--count", "-n", type=click.IntRange(min=1), default=3, show_default=True, help="How many to show.")
def show(samples: Path, model: str, first: int, count: int) -> None:
    """Show samples of SAMPLES as text: green trains, grey is context.

    \b
    Example:
      samplekit show samples.jsonl --model samplekit/tiny -n 2
    """
    template = load_template(model)
    shown = list(islice(read_samples(samples), first, first + count))
    if not shown:
        raise SampleError(f"{samples} holds no sample at place {first}: choose a smaller --first")
    for index, sample in enumerate(shown, first):
        try:
            view = sample_view(sample, template, f"sample {index}")
        except TemplateError as error:
            raise SampleError(
                f"sample {index} of {samples} cannot be shown ({error}): samplekit validate --model {model} names all "
                "faults"
            ) from error
        results.print(view)


def sample_view(sample: Sample, template: ChatTemplate, title: str) -> Panel:
    """Draw a sample: what trains in green (underlined where its weight is not 1), context in grey.

    Args:
        sample: what to draw.
        template: decodes the tokens.
        title: stands above it.
    """
    text = Text()
    tokens = sample.tokens.tolist()
    for span in sample_spans(sample):
        style = _CONTEXT if span.weight == 0 else _TRAINED if span.weight == 1 else f"{_TRAINED} underline"
        text.append(template.decode(tokens[span.start : span.stop]).translate(_VISIBLE), style=style)
    source = sample.info.get("source", "")
    legend = f"{len(tokens)} tokens, {sample.num_trained} trained (green){' - ' + str(source) if source else ''}"
    return Panel(text, title=title, subtitle=legend, title_align="left", subtitle_align="right")
