"""Robustness: killed runs, damaged files, full disks, long runs."""
