"""The log of one partition: appending, reading, watermarks, rolling, truncation, retention."""
