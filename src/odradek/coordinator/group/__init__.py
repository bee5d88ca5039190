"""Consumer groups as plain values and functions: members, generations, offsets, their records.

Nothing here waits, reads a clock or writes a file. Where to begin: `group` holds the state,
`decisions` what functions return, `joining` and `syncing` make a generation, `sessions` end one.
"""
