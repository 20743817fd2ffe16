"""The lab: measures this system against limits taken in the same run."""
