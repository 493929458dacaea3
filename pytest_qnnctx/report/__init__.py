"""One record per test, shown on the terminal, as JSON and in JUnit."""
