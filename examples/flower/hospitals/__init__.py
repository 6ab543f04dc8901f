"""Three hospitals train one model, minimax over groups of patients."""
