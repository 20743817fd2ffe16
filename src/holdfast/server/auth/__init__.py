"""Tokens, scopes, rate limits and certificates: one check for every protocol."""
