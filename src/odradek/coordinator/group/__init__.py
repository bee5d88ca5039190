"""Consumer groups: members, generations, offsets, their records.

State and decisions are plain values and functions that neither wait nor read a clock: `group` has a
group's state, `offsets` its committed offsets, `decisions` the values that functions return;
`membership` and `syncing` make a generation, `sessions` end one, `replay` restores all of it from
the log. `coordinator` waits, reads clocks and writes, with `commit_batching` and `upkeep`.
"""
