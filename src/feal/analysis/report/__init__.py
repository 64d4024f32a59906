"""The report over runs: one page that needs nothing else, and the same page live."""
