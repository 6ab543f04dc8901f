from fedminmax.config.read import TableConfig, read_config
from fedminmax.data.adult import load_adult
from fedminmax.data.partition import Setting, partition_by_dirichlet, partition_by_setting
from fedminmax.data.synthetic import draw_synthetic

__all__ = [
    "Setting",
    "TableConfig",
    "draw_synthetic",
    "load_adult",
    "partition_by_dirichlet",
    "partition_by_setting",
    "read_config",
]
