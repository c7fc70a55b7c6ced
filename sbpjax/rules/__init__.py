"""How each primitive may be split: one rule a primitive, a family a file.

Importing this package registers every family.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
