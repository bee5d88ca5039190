"""What is done beside a run: checkpoints, status, reset, backfill."""
