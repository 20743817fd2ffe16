"""`make bench` and `holdfast bench`: throughput as ratios to limits measured in the same run."""
