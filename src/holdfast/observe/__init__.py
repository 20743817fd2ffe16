"""What operators see: logs now, metrics and traces later."""
