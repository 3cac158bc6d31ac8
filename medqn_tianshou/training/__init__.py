"""A training run: build it, run it on Tianshou's trainer, log it, checkpoint it, resume it."""
