"""From a program, a mesh and a cluster to the search problem, and from its solution back to a layout."""
