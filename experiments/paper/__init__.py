"""The paper's two experiments, with its tables next to ours."""
