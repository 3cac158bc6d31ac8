"""``medqn report``: tables and figures from runs, with intervals."""
