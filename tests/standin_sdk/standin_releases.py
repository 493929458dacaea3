"""The versions that the stand-in SDK can act as, and where public sources say that they differ.

A version that is not in the table acts as the nearest older one, with its own numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Release:
    """One acting version.

    ``version`` is what ``sdk.yaml`` says, ``build_id`` what its binaries carry. The build id has 20
    characters with its ``v``, as that of the compiler that really works underneath, so that it can
    be put in its place; where a source names fewer digits, the rest is made up.
    """

    version: str
    build_id: str
    act_bits: str
    weight_bits: str
    bias_bits: str
    float_fallback: str
    one_of_list_and_fallback: bool
    soc_keys: tuple[str, ...]
    graphs_are_a_list: bool
    input_shape: tuple[str, ...] = ("--source_model_input_shape", "-s")

    @property
    def yaml_version(self) -> str:
        return ".".join(self.build_id.split(".")[:3])

    @property
    def yaml_build(self) -> str:
        return self.build_id.split(".")[3]


#: Flag names: the quantizers of older SDKs say ``--float_fallback``, ``--act_bw``, ``--weight_bw``;
#: later documentation (80-63442-2, June 2025) ``--enable_float_fallback``, ``--act_bitwidth``,
#: ``--weights_bitwidth``. That documentation makes ``--input_list`` and the fallback exclusive and
#: one of them mandatory; a guide written with 2.37 runs the quantizer with neither.
#: Config keys: a report of 2.18 takes ``graphs`` as one object and ``soc_id``; a file that ran on
#: a QCS6490 with 2.45.40 has a list and ``soc_model``; the SDK's own accuracy tooling lists both
#: keys for the generator.
RELEASES: dict[str, Release] = {
    "2.18.0.240101": Release(
        "2.18.0.240101",
        "2.18.0.240101150111",
        "--act_bw",
        "--weight_bw",
        "--bias_bw",
        "--float_fallback",
        False,
        ("soc_id",),
        False,
        ("--input_dim", "-d"),
    ),
    "2.37.1.250807093845": Release(
        "2.37.1.250807093845",
        "2.37.1.250807093845",
        "--act_bw",
        "--weight_bw",
        "--bias_bw",
        "--float_fallback",
        False,
        ("soc_id", "soc_model"),
        True,
    ),
    "2.45.40.260406": Release(
        "2.45.40.260406",
        "2.45.40.26040683012",
        "--act_bitwidth",
        "--weights_bitwidth",
        "--bias_bitwidth",
        "--enable_float_fallback",
        True,
        ("soc_model",),
        True,
    ),
}
BUILD_ID_LENGTH = 19


def release(version: str) -> Release:
    """The table's row for ``version``, or the nearest older one under that name."""
    if version in RELEASES:
        return RELEASES[version]
    older = [r for r in RELEASES.values() if _numbers(r.version) <= _numbers(version)]
    base = max(older, key=lambda r: _numbers(r.version), default=next(iter(RELEASES.values())))
    return replace(base, version=version, build_id=_full(version))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _full(version: str) -> str:
    head, _, build = version.rpartition(".")
    return f"{head}.{build.ljust(BUILD_ID_LENGTH - len(head) - 1, '0')}"
