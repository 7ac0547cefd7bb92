"""Logs of past quotes: reading them, encoding them, and demand models fitted to them."""

from hushprice.logs.design import Design, Rows, held_out
from hushprice.logs.diagnostics import Coefficient, Curve, HeldOut, Report, Score, Segment, Tenth
from hushprice.logs.encoding import Category, Encoding, Number
from hushprice.logs.findings import Finding
from hushprice.logs.model import DemandModel, fit
from hushprice.logs.restoring import ModelFileError
from hushprice.logs.source import Batch, Log, Source
from hushprice.logs.stream import StreamedFit, stream_fit
from hushprice.logs.survey import Columns, Outcomes, Survey, survey

__all__ = [
    "Batch",
    "Category",
    "Coefficient",
    "Columns",
    "Curve",
    "DemandModel",
    "Design",
    "Encoding",
    "Finding",
    "HeldOut",
    "Log",
    "ModelFileError",
    "Number",
    "Outcomes",
    "Report",
    "Rows",
    "Score",
    "Segment",
    "Source",
    "StreamedFit",
    "Survey",
    "Tenth",
    "fit",
    "held_out",
    "stream_fit",
    "survey",
]
