"""The paper's experiments, a module for each: the scripts, and the command `medqn`, run these."""
