"""Collectors that step environments and fill the replay buffer."""
