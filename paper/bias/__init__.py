"""The bias of the pool mean as a baseline, by rule and pass rate."""
