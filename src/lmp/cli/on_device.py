"""``--device`` of commands that show an answer card: what is wanted, known before anything is analysed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmp.cli.devices import predictor_of
from lmp.cli.options import Common

if TYPE_CHECKING:
    from lmp.cli.given import Axes
    from lmp.observe.held import Held
    from lmp.predict.devices import Device
    from lmp.predict.prediction import Predictor
    from lmp.predict.rewrite.profiles import Profile
    from lmp.predict.screen.asking import Ask, Subject
    from lmp.predict.screen.records import Card
    from lmp.predict.shard.parallel import Parallel

WITH_A_CARD = ("table", "json")


@dataclass(frozen=True)
class Wanted:
    """A device, and how the model runs on it."""

    device: Device
    predictor: Predictor
    profile: Profile | None
    name: str
    products: str
    parallel: Parallel

    def ask(self, given: Axes) -> Ask:
        """The call, at the first value of each name."""
        from lmp.predict.screen.asking import Ask

        sizes = {name: values[0] for name, values in given.items()}
        if self.profile is not None and self.profile.cache_bytes is not None:
            sizes.setdefault("kv_bytes", self.profile.cache_bytes)
        return Ask(self.device, sizes, self.products, self.profile, self.name, self.parallel)

    def card(self, subject: Subject, given: Axes, held: Held | str) -> Card:
        """The answer card of the call. ``held`` is what the model holds."""
        from lmp.predict.screen.card import card

        return card(subject, self.ask(given), self.predictor, held=held)

    def card_at(self, subject: Subject, given: Axes, held: Held | str) -> Callable[[Mapping[str, Any]], Card]:
        """The answer card of the call at some other values."""
        from lmp.link.values import CALL
        from lmp.predict.screen.card import card

        first = self.ask(given)

        def at(values: Mapping[str, Any]) -> Card:
            # Another config holds other weights: they are worked out again.
            same = held if values.keys() <= set(CALL) else None
            return card(subject, replace(first, given=first.to(**values)), self.predictor, held=same)

        return at


def wanted_on_device(
    common: Common, name: str | None, engine: str | None, parallel: Parallel, files: tuple[Path | None, Path | None]
) -> Wanted | None:
    """What ``--device`` and the options beside it ask for; None without a device. Raises UsageError."""
    from lmp.errors import UsageError

    if name is None:
        if engine is not None:
            raise UsageError(f"--engine {engine[:40]} predicts on a device\ngive one too, as in --device h100-sxm")
        return None
    from lmp.predict.eager import refuse_products
    from lmp.predict.rewrite.profiles import profile_named

    predictor = predictor_of(*files)
    device = predictor.device(name)
    profile = None if engine is None else profile_named(engine)
    products = products_of(common)
    refuse_products(device, products)
    return Wanted(device, predictor, profile, engine or "eager", products, parallel)


def products_of(common: Common) -> str:
    """The dtype of matrix products that ``--dtype`` says."""
    from lmp.dtypes import WORDS

    return "bfloat16" if common.element_type is None else WORDS[str(common.element_type)].products


def refuse_form(form: str, given: Axes) -> None:
    """Raise UsageError for a format that has no place for what a call takes on a device.

    A sweep has columns for it in each format that takes several points; the form of one point does not.
    """
    from lmp.errors import UsageError

    if form not in WITH_A_CARD and all(len(values) == 1 for values in given.values()):
        raise UsageError(
            f"--format {form} has no place for the time of one call on a device\n"
            "leave out --device, or give several values (-b 1:64:*2): a sweep has its times beside the costs"
        )
