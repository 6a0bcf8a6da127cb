"""Placements by the names that settings use."""

from millstream.cluster.placement.balanced import Balanced
from millstream.cluster.placement.candidate import Placement
from millstream.cluster.placement.modulo import Modulo
from millstream.cluster.placement.ring import Ring

PLACEMENTS: dict[str, Placement] = {"ring": Ring(), "modulo": Modulo(), "balanced": Balanced()}
