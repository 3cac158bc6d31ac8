"""Sweep files for the tests."""

SHORT = """
family = "lowdim"
tasks = ["MountainCar-v0"]
algorithms = ["dqn"]
seeds = {seeds}

[settings]
steps = {steps}
warmup-steps = 100
step-per-collect = 8
max-episode-steps = 50
return-window = 3
checkpoint-every = 200
"""
GOOD = SHORT.format(steps=300, seeds=1)


def write(path, text):
    path.write_text(text)
    return path
