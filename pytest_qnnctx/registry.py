"""Everything that was offered through the hooks, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_qnnctx.errors import UsageError

if TYPE_CHECKING:
    from pytest_qnnctx.boards.transport import TransportFactory
    from pytest_qnnctx.build.toolchain import Toolchain
    from pytest_qnnctx.config import Settings
    from pytest_qnnctx.judge.gate import Gate
    from pytest_qnnctx.judge.metric import Metric
    from pytest_qnnctx.run.runner import Runner


class Registry:
    """Looks names up among what the hooks offer; a later registration wins a name.

    The hooks are asked each time: a conftest.py further down is loaded during collection.

    ``hook`` is the ``hook`` attribute of a pluggy manager that knows :mod:`.hookspecs`;
    ``settings`` are given to what offers toolchains.
    """

    def __init__(self, hook: Any, settings: Settings) -> None:
        self._hook = hook
        self.settings = settings
        self._toolchains: tuple[tuple[int, ...], dict[str, Toolchain]] | None = None

    @property
    def gates(self) -> Mapping[str, Gate]:
        """Gates by name, in the order in which they are judged and shown."""
        return self._named("pytest_qnnctx_gates")

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Task metrics by name."""
        return self._named("pytest_qnnctx_metrics")

    @property
    def toolchains(self) -> Mapping[str, Toolchain]:
        """Toolchains by name, best first; the same ones until another plugin offers some.

        Some look up an SDK on another machine, and remember it.
        """
        hook = self._hook.pytest_qnnctx_toolchains
        offering = tuple(id(one.plugin) for one in hook.get_hookimpls())
        if self._toolchains is None or self._toolchains[0] != offering:
            found = self._named("pytest_qnnctx_toolchains", settings=self.settings)
            self._toolchains = offering, found
        return self._toolchains[1]

    @property
    def runners(self) -> Mapping[str, Runner]:
        """Runners by name."""
        return self._named("pytest_qnnctx_runners")

    @property
    def transports(self) -> Mapping[str, TransportFactory]:
        """Transports by the name that boards.yaml uses."""
        merged: dict[str, TransportFactory] = {}
        for offered in reversed(self._hook.pytest_qnnctx_transports()):
            if not isinstance(offered, Mapping):
                raise _bad_offer("pytest_qnnctx_transports", f"{offered!r} is no mapping")
            merged.update(offered)
        return merged

    def _named(self, hook: str, **given: Any) -> dict[str, Any]:
        """Pluggy calls the last registered first; the built-in ones were registered first."""
        found: dict[str, Any] = {}
        for offer in reversed(getattr(self._hook, hook)(**given)):
            if isinstance(offer, str | Mapping) or not isinstance(offer, Iterable):
                raise _bad_offer(hook, f"{offer!r} is no list")
            for thing in offer:
                if not isinstance(getattr(thing, "name", None), str):
                    raise _bad_offer(hook, f"{thing!r} has no name")
                found[thing.name] = thing
        return found

    def transport(self, name: str) -> TransportFactory:
        """Raises UsageError where no transport has that name."""
        return _look_up("transport", name, self.transports)  # type: ignore[no-any-return]

    def runner(self, name: str) -> Runner:
        """Raises UsageError where no runner has that name."""
        return _look_up("runner", name, self.runners)  # type: ignore[no-any-return]

    def toolchain(self, name: str) -> Toolchain:
        """Raises UsageError where no toolchain has that name."""
        return _look_up("toolchain", name, self.toolchains)  # type: ignore[no-any-return]


def _bad_offer(hook: str, why: str) -> UsageError:
    return UsageError(
        f"an implementation of the hook {hook} returned what it must not: {why}",
        next_step="return what pytest_qnnctx/hookspecs.py says, from conftest.py or the plugin",
    )


def _look_up(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    if name in known:
        return known[name]
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(sorted(known))}"
    raise UsageError(f"there is no {kind} '{name}'", next_step=hint)
