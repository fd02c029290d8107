"""Row "collate" of lists for all into padded rows."""

from benchmarks.collating import as_list, padded_row

ROW = padded_row("collate-padded-lists", "lists for all", as_list)
