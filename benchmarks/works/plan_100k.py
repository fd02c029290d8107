"""Row "plan" at 102,400 lengths."""

from benchmarks.planning import A_HUNDRED_THOUSAND, planning_row

ROW = planning_row("plan-100k", "102,400", A_HUNDRED_THOUSAND, best=10, ffd=25, stand_in=True)
