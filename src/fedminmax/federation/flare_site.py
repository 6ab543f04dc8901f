"""The site's half of a job, under the name that jobs and kits on disk know it by."""

from fedminmax.federation.flare.site import FlareSite

__all__ = ["FlareSite"]
