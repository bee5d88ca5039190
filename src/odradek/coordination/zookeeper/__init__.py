"""The ZooKeeper engine: a client of ZooKeeper's protocol on the broker's own event loop."""
