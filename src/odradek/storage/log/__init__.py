"""The log of one partition: appending, reading, watermarks, rolling, truncating, forgetting."""
