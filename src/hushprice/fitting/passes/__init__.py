"""Passes over a log: the survey, Newton steps and the separability check, in bounded memory."""
