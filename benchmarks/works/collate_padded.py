"""Row "collate" of lists into padded rows."""

from benchmarks.collating import padded_row

ROW = padded_row("collate-padded", "columns are lists", lambda values: values.tolist())
