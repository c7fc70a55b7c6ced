"""How each primitive may be split: one rule a primitive, a family a file."""
