"""The command line: `sbpjax plan`, `sbpjax train`, `sbpjax version`."""

from sbpjax.cli.app import app as app
