"""Carrying out a layout: the step as a program for all devices, by `shard_map` (`manual`) or by `jit` (`auto`)."""
