"""`python -m wellfed` is the `wellfed` command."""

from wellfed.cli.main import main

if __name__ == "__main__":
    main()
