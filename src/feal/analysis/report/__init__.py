"""The report: what runs say, as one page that needs nothing else; and the same page, live."""

from feal.analysis.report.contents import Contents, contents
from feal.analysis.report.page import render

__all__ = ["Contents", "contents", "render"]
