"""The shortest mixture of vectors, with weights near given ones: a small quadratic programme.

minimise |sum_k lambda_k d_k|^2 over sum_k lambda_k = 1, lambda >= 0, |lambda - lambda_0|_inf <= e.
Only inner products of the vectors matter, so the programme has one unknown per vector, however
long the vectors are. scipy's SLSQP leaves gaps of 1e-9 and is slower than ``simplex_qp``
(benchmarks/min_norm_solvers.py).

| symbol               | name    |
|----------------------|---------|
| G_jk = <d_j, d_k>    | gram    |
| lambda               | weights |
| lambda_0             | centre  |
| e                    | radius  |
"""

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.simplex_qp import minimise_on_simplex


def min_norm_weights(gram: Tensor, centre: Tensor, radius: float) -> Tensor:
    """Return the weights of the shortest mixture; ``centre`` must lie on the simplex.

    Several weights may give the shortest mixture, which itself is unique.

    >>> gram = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> [round(weight, 9) for weight in min_norm_weights(gram, half, 1.0).tolist()]
    [0.75, 0.25]
    >>> [round(weight, 9) for weight in min_norm_weights(gram, half, 0.125).tolist()]
    [0.625, 0.375]
    """
    start = centre.numpy()
    low, high = np.maximum(start - radius, 0.0), np.minimum(start + radius, 1.0)
    return torch.from_numpy(
        minimise_on_simplex(gram.numpy(), np.zeros(len(start)), start, low, high)
    )
