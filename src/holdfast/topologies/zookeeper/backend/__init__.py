"""Jobs as nodes of a ZooKeeper ensemble: clients post them and workers bid for them, without a server of ours."""
