"""Comparing decoding modes on one loaded pair: prompts, the interleaved run, statistics, the written result."""
