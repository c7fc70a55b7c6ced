"""Choosing one option per node at the least cost within memory. Pure numpy and solvers: no JAX, no graphs of ops."""
