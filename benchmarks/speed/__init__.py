"""Training speed: Tianshou's DQN, plain MeDQN, ours, and a loop without a framework."""
