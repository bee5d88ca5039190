"""The subcommands of `odradek pipeline`: files, runs, and operations beside a run."""
