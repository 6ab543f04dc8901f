"""Where the defaults that many methods share come from."""

PAPADAKI = "Papadaki et al. 2021, Appendix B"
OURS = "ours: the paper gives none"
RATE = {"learning_rate": PAPADAKI}
SAFE_RATE = {"learning_rate": "ours: as large as is safe for the rows (networks: at most 0.1)"}
ADVERSARY = {"adversary_rate": PAPADAKI}
LOCAL = {"epochs": PAPADAKI, "batch_size": PAPADAKI}
FLOOR = {"epsilon": "Papadaki et al. 2021, Algorithm 1 (no floor)"}
AUTHORS = "the authors' code"
START = {"start": "Papadaki et al. 2021 (lambda^0 = n_k / n)"}
SNAPSHOTS = {"adversary_rate": OURS, "steps": OURS, "batch_size": OURS}
FITS = {"fit_rounds": OURS, "warm_start": OURS}
LOOK_AHEAD = {
    "curvature": "ours: second derivatives for linear models of moderate size",
    "learning_rate": "ours: of the first step; the server chooses the others",
    "momentum": "Kingma and Ba 2015 (Adam)",
}
GAP = {"gap": "ours: a tenth of what reports call converged"}
