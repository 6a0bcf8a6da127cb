"""The load driver: C sources, how they are built, and a slower stand-in for machines without a compiler."""
