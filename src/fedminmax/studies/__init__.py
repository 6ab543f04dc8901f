"""Studies: methods x settings x folds whose runs share one folder and add up to one table."""
