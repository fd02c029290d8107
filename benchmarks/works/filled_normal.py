"""Row "filled" where every row holds two or three items."""

from benchmarks.planning import filling_row, two_or_three_a_row

ROW = filling_row("filled-normal", "normal around 1,500, from 600", two_or_three_a_row, 1.0)
