"""Diagnosis of a fit: report, held-out scores, segments and findings."""
