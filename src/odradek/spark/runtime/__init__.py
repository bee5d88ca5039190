"""The runtime of a Spark session: Java, its class-data archive, this package on executors."""
