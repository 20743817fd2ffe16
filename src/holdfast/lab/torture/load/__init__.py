"""Clients that ask all the while, and write down what they asked and what they were told."""
