"""The experiments of the paper: settings and figures as data."""
