"""Facts as data, each number with its source: `gpu/*.toml`, `link/*.toml`, `price/*.csv`."""
