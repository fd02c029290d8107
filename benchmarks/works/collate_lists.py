"""Row "collate" of lists for all, as a dataset gives its rows."""

from benchmarks.collating import as_list, flat_row

ROW = flat_row("collate-lists", "lists for all", as_list)
