"""``python -m hushprice``: the command line, where no ``hushprice`` is on the path."""

from hushprice.cli import main

if __name__ == "__main__":
    main()
