"""What a run discloses, and to whom: secure aggregation, and the privacy guarantee."""

from fedminmax.core.noise import Unit
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.core.text import counted
from fedminmax.findings.records import PrivacyOfRun, Results
from fedminmax.findings.text import capitalised

WITHOUT_AGGREGATION = "the server sees every reply of every site separately"
NOT_COVERED = (
    "Not covered by it: test results and counts of records in this folder; the means and standard "
    "deviations by which columns are encoded; the names of groups and categories; what was chosen "
    "after looking at the data."
)
NOT_COVERED_AT_SITES = (
    "Not covered by it: test results; the number of training records over all sites, and the sums "
    "by which number columns are encoded; which groups and categories occur, and at how many "
    "sites; what was chosen after looking at the data, and which sites took part when."
)
NO_GUARANTEE = (
    "There is no formal bound (differential privacy) on what the model reveals of a record."
)


def with_aggregation(threshold: int) -> str:
    """Say what the server learns under secure aggregation."""
    return f"the server learns only totals over at least {threshold} sites"


def what_the_server_sees(results: Results, reveals: str) -> str:
    """Say what the server saw of the sites; ``reveals`` is what the method would show it."""
    if results.sites is None:
        return (
            f"What a server would see of each site: {reveals}, and sums and counts for the "
            "encoding. In this run one process read all files."
        )
    stayed = f"The records stayed at {counted(len(results.sites), 'site')}."
    if results.secure_aggregation is None:
        return (
            f"{stayed} The server saw each site's individual replies, and sums and counts for the "
            "encoding and the test results."
        )
    return (
        f"{stayed} Secure aggregation: {with_aggregation(results.secure_aggregation)}, for the "
        "encoding, the rounds and the test results."
    )


def guarantee_words(privacy: Privacy | PrivacyOfRun) -> str:
    """Say what is guaranteed of whom."""
    unit = privacy.unit.value if isinstance(privacy.unit, Unit) else privacy.unit
    hidden = "one training record" if unit == Unit.ROW.value else "all that one site has"
    colluding = (
        f", even if {counted(privacy.colluding, 'site discloses', 'sites disclose')} noise or "
        f"{'is' if privacy.colluding == 1 else 'are'} missing"
        if privacy.colluding
        else ""
    )
    return (
        f"differential privacy: (epsilon, delta) = ({privacy.epsilon:g}, {privacy.delta:g}) for "
        f"{hidden}, added or removed{colluding}"
    )


def guarantee_lines(privacy: PrivacyOfRun, *, between_sites: bool) -> tuple[str, str, str]:
    """Say what a run guarantees, what that does not cover, and what became of small groups."""
    spent = ""
    if privacy.spent is not None:
        spent = f" All runs on these files have spent epsilon {privacy.spent:.3g}."
    guaranteed = (
        f"{capitalised(guarantee_words(privacy))}; {counted(privacy.releases, 'release')} with "
        f"noise multiplier {privacy.noise_multiplier:.3g}, clip {privacy.clip:g}, losses up to "
        f"{privacy.max_loss:.3g}.{spent}"
    )
    small = (
        f"Groups of fewer than {privacy.minimum_group:,} records are weighted by size: noise would "
        "dominate their sums."
    )
    return guaranteed, NOT_COVERED_AT_SITES if between_sites else NOT_COVERED, small


def privacy_lines(results: Results) -> tuple[str, ...]:
    """Say what is guaranteed and what is not; nothing without a guarantee."""
    if results.privacy is None:
        return ()
    return guarantee_lines(results.privacy, between_sites=results.sites is not None)
