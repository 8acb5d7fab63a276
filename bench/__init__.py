"""Benchmarks: see README.md beside this file."""
