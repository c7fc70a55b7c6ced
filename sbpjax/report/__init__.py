"""Reports: what a plan, or XLA's evidence for it, says of itself; as text and as HTML."""

from sbpjax.report.document import Document as Document
from sbpjax.report.document import Section as Section
from sbpjax.report.notebook import html as html
from sbpjax.report.tables import document as document
from sbpjax.report.terminal import renderable as renderable
from sbpjax.report.terminal import text as text
