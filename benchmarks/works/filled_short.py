"""Row "filled" where a row holds many short items."""

from benchmarks.planning import filling_row, many_short

ROW = filling_row("filled-short", "lognormal around 600", many_short, 0.01)
