"""Row "collate" of rows that are packed already."""

from benchmarks.collating import rows_row

ROW = rows_row("collate-rows")
