"""How the holders' personal models do: each is measured on its own holder's test rows."""

from dataclasses import replace

from torch import Tensor

from fedminmax.data.tables.load import FederatedTables
from fedminmax.data.tables.words import listed
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.report.model_scores import score_rows
from fedminmax.report.run_folder_records import NOT_MEASURED, Measured
from fedminmax.report.saved_model import SavedModel
from fedminmax.report.table_metrics import measure_scored

OWN_MODEL = "the holder's own model"


def measure_personal(
    common: SavedModel,
    tables: FederatedTables,
    federation: InProcessFederation,
    kept: Tensor,
) -> tuple[Measured, list[str]]:
    """Return metrics by group over all holders' test rows, and what to note about them.

    ``kept`` has a line of parameters for each holder; ``common`` is the model for all of them.
    """
    own_models = {
        holder: replace(common, model=federation.model(own).cpu(), members=1, iterate=OWN_MODEL)
        for holder, own in zip(tables.holders, kept, strict=True)
    }
    measured = [
        (own_models[part.owner], part.examples)
        for part in tables.test
        if part.owner in own_models and len(part.examples)
    ]
    others = [part.owner for part in tables.test if part.owner not in own_models]
    notes = []
    if others:
        notes.append(
            f"test rows of {listed(others)} belong to no holder: personal models are not measured "
            "on them"
        )
    if not measured:
        return NOT_MEASURED, notes
    return measure_scored(score_rows(measured), common), notes
