"""Drive a run: rounds, communication rounds, aggregation."""
