"""Which toolchain gives a model's binary, and why: asked for by name, or chosen by ``auto``.

``auto`` takes, in this order: what the manifest pins; what is in the cache and was built of the
same files by a better toolchain than is at hand (a cache that came from a machine with the SDK);
the best toolchain that is at hand, ``qairt`` before ``ort``. A binary that the chosen toolchain
built before comes from the cache as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_qnnctx.errors import InfrastructureError, QnnctxError, UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.build.builder import Sources
    from pytest_qnnctx.build.store import Store
    from pytest_qnnctx.build.toolchain import Toolchain
    from pytest_qnnctx.model import Artifact, Model, Target
    from pytest_qnnctx.registry import Registry

AUTO = "auto"
#: Never chosen by ``auto`` for being installed: one needs a pin, the other a board and a library.
_ONLY_BY_NAME = frozenset({"fetch", "onboard"})


@dataclass(frozen=True)
class Choice:
    """A toolchain and the reason for it; ``artifact`` is set where nothing has to be built."""

    toolchain: Toolchain | None
    reason: str
    artifact: Artifact | None = None


def session_choice(registry: Registry, name: str) -> Choice:
    """What can be said before any model is known; a pin or the cache may still win.

    Raises UsageError for an unknown name, InfrastructureError where ``auto`` finds none.
    """
    if name != AUTO:
        return Choice(registry.toolchain(name), f"asked for: {name}")
    best = best_at_hand(registry.toolchains)
    manifest = registry.settings.manifest
    if manifest is None:
        return best
    return replace(best, reason=f"{best.reason}; what {manifest.name} pins is taken from there")


def best_at_hand(toolchains: Mapping[str, Toolchain]) -> Choice:
    """The first of ``toolchains`` that ``auto`` may take and that is installed.

    Raises UsageError for a broken configuration, InfrastructureError where none is.
    """
    found, reasons = _at_hand(toolchains)
    if found is None:
        raise _none_at_hand(reasons)
    return Choice(found, f"auto: {found.name} is installed{_not(reasons)}")


def choose(registry: Registry, name: str, sources: Sources, store: Store) -> Choice:
    """The toolchain for one model. Raises as :func:`session_choice` does."""
    if name != AUTO:
        return Choice(registry.toolchain(name), f"asked for: {name}")
    toolchains = registry.toolchains
    pinned = toolchains.get("fetch")
    if pinned is not None and _pins(pinned, sources.model, sources.target):
        return Choice(pinned, "auto: the manifest pins it")
    found, reasons = _at_hand(toolchains)
    better = _better_in_cache(toolchains, found, sources, store)
    if better is not None:
        assert better.provenance is not None
        made = better.provenance.toolchain
        why = f"auto: in the cache, built by {made['name']} {made['version']} from the same files"
        return Choice(None, f"{why}{_not(reasons)}", better)
    if found is None:
        raise _none_at_hand(reasons)
    return Choice(found, f"auto: {found.name} is installed{_not(reasons)}")


def _pins(toolchain: Toolchain, model: Model, target: Target) -> bool:
    pins = getattr(toolchain, "pins", None)
    return bool(pins is not None and pins(model, target))


def _ranked(toolchains: Mapping[str, Toolchain]) -> list[Toolchain]:
    return [t for t in toolchains.values() if t.name not in _ONLY_BY_NAME]


def _at_hand(toolchains: Mapping[str, Toolchain]) -> tuple[Toolchain | None, list[str]]:
    """The first that says what it is, and why those before it do not."""
    reasons = []
    for candidate in _ranked(toolchains):
        try:
            candidate.identify()
        except UsageError:
            raise  # half-written configuration: to be corrected, not to be passed over
        except QnnctxError as error:
            reasons.append(f"{candidate.name}: {error.what}")
        else:
            return candidate, reasons
    return None, reasons


def _better_in_cache(
    toolchains: Mapping[str, Toolchain], found: Toolchain | None, sources: Sources, store: Store
) -> Artifact | None:
    """The newest artifact of the same sources by a toolchain that ranks before ``found``."""
    names = [toolchain.name for toolchain in _ranked(toolchains)]
    before = names if found is None else names[: names.index(found.name)]
    if not before:
        return None
    for name in before:
        built = {
            artifact.provenance.built_at: artifact
            for artifact in store.of_source(sources.key)
            if artifact.provenance is not None and artifact.provenance.toolchain["name"] == name
        }
        if built:
            return built[max(built)]
    return None


def _not(reasons: list[str]) -> str:
    return f"; not {'; not '.join(reasons)}" if reasons else ""


def _none_at_hand(reasons: list[str]) -> InfrastructureError:
    return InfrastructureError(
        "no toolchain is at hand (" + "; ".join(reasons) + ")",
        next_step="pip install 'pytest-qnnctx[sim]' brings Qualcomm's compiler from PyPI; "
        "`qnnctx doctor` shows what is missing for the others",
    )
