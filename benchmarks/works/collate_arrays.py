"""Row "collate" of arrays, as a dataset gives its rows `with_format("numpy")`."""

import numpy as np

from benchmarks.collating import GOAL, flat_row

ROW = flat_row("collate-arrays", "columns are arrays", np.asarray, goal=GOAL)
