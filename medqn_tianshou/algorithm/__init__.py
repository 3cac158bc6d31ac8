"""The paper: policy, loss, state samplers, bounds, schedules, networks."""
