"""Reports: what a plan says of itself, as text and as HTML."""

from sbpjax.report.notebook import html as html
from sbpjax.report.terminal import renderable as renderable
from sbpjax.report.terminal import text as text
