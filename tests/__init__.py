"""A package of its own name: verl and TransferQueue install one called tests, which would be found first."""
