"""Consumer groups: members, generations, offsets, their records.

State and decisions are plain values and functions that neither wait nor read a clock: `group` holds
a group's state, `offsets` what it committed, `decisions` says what functions return, `membership`
and `syncing` make a generation, `sessions` end one, `replay` reads all of it from the log. What
waits, reads clocks and writes is `coordinator`, with `commit_batching` and `upkeep` behind it.
"""
