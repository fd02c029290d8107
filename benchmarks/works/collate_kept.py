"""Row "collate" of what each keeps: arrays of ours, lists of a dataset."""

import numpy as np

from benchmarks.collating import as_list, flat_row

ROW = flat_row("collate", "what each keeps", as_list, own=np.asarray)
