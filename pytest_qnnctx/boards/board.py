"""A board as boards.yaml describes it, and what was found out about it when it was leased."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_qnnctx.model import Target


@dataclass(frozen=True)
class Board:
    """One entry of boards.yaml (or the built-in ``sim``).

    ``transport`` and ``runner`` are names looked up in the registry. ``settings`` keeps the keys
    that only the transport reads (host, serial ...). ``shared`` boards (the emulator) are not
    leased exclusively: any number of workers may use one at once.
    """

    name: str
    target: Target
    transport: str
    runner: str
    staging_dir: str
    tags: tuple[str, ...] = ()
    lib_dir: str | None = None
    power: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    shared: bool = False


@dataclass(frozen=True)
class BoardFacts:
    """What the board said of itself. None: it could not be read (a gate that needs it fails).

    ``emulated`` is True where the HTP is Qualcomm's emulator on the host: times taken there are
    no hardware evidence. ``qnn_version`` is the runtime's ("2.51.0.260929181845"); ``engine`` names
    the whole runtime with versions.
    """

    machine: str
    emulated: bool
    htp_arch: str | None
    soc: str | None
    qnn_version: str | None
    engine: str = ""
