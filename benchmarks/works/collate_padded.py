"""Row "collate" into padded rows: what each keeps, arrays of ours and lists of a dataset."""

import numpy as np

from benchmarks.collating import as_list, padded_row

ROW = padded_row("collate-padded", "what each keeps", as_list, own=np.asarray)
