"""Reports: what a plan says of itself, as text and as HTML."""

from sbpjax.report.html import html as html
from sbpjax.report.text import renderable as renderable
from sbpjax.report.text import text as text
