"""The user's function as a graph of named ops and tensors."""
