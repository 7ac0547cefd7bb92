"""Alembic's scripts: ``env.py`` runs them, ``versions/`` has one module per revision of the tables."""
