"""The same results, sooner. Everything works without this package, more slowly."""
