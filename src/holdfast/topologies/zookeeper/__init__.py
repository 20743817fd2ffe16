"""Jobs as nodes of a ZooKeeper ensemble: clients post them, workers bid for them, no process of ours decides."""
