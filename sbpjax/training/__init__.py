"""Training by recipe: small and honest, the room in which a trainer can grow."""

from sbpjax.training.recipe import Recipe as Recipe
from sbpjax.training.recipefile import load as load
from sbpjax.training.run import prepare as prepare
