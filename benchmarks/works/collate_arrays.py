"""Row "collate" of arrays for all, as a dataset gives its rows `with_format("numpy")`."""

import numpy as np

from benchmarks.collating import flat_row

ROW = flat_row("collate-arrays", "arrays for all", np.asarray)
