"""What a Spark session runs on: Java, its archive of classes, this package on executors."""
