"""What tests of Holdfast, and of programs that use it, are built from."""
