"""The command ``medqn report``: tables and figures from the folders of runs."""
