"""How Alembic runs the migrations: on the connection, and inside the transaction, of whoever asked for them."""

from alembic import context

# SQLite can undo changes of tables too; Alembic assumes that it cannot.
context.configure(**context.config.attributes, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
