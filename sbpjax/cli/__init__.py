"""The command line: `sbpjax plan`, `sbpjax train`, `sbpjax version`."""

from sbpjax.cli.main import app as app
