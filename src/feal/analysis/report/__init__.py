"""The report over runs: one page that needs nothing else, and the same page live."""

from feal.analysis.report.build import Report, build_report, render_page

__all__ = ["Report", "build_report", "render_page"]
