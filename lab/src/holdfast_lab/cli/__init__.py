"""The commands that this distribution adds to the program `holdfast`."""
