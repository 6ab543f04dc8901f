"""Tests from mathematics and outside oracles; helpers are in problems and oracles."""
