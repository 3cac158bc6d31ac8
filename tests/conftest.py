import torch

# The networks of the tests are tiny: more threads only wait for each other.
torch.set_num_threads(1)
