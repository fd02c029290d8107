"""Row "plan" at 1,024,000 lengths: the longest row, for TRL takes most of a minute for each of its runs."""

from benchmarks.planning import A_MILLION, planning_row

ROW = planning_row("plan-1m", "1,024,000", A_MILLION, best=50, ffd=100, stand_in=False)
