"""Operations beside a run: checkpoints, status, reset, backfill."""
