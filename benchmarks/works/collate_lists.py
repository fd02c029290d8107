"""Row "collate" of lists, as a dataset gives its rows."""

from benchmarks.collating import flat_row

ROW = flat_row("collate-lists", "columns are lists", lambda values: values.tolist())
