"""Row "filled" where a row holds few long items."""

from benchmarks.planning import few_long, filling_row

ROW = filling_row("filled-long", "lognormal around 1,500", few_long, 0.1)
