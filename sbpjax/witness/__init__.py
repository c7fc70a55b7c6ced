"""The witness: a program as XLA's GPU compiler compiled it, the independent evidence for a plan."""
