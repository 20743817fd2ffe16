"""The judge of recorded histories: every promise, kept, broken, or not put to the test."""
