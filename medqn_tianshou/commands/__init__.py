"""The command line: ``medqn`` and its subcommands."""
