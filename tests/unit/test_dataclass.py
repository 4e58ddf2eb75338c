"""Our dataclasses behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import msgspec
import pytest

from whet.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A class as most of ours are."""

    name: str
    size: int = 3
    parts: list[int] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", compare=False, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """The same by the standard library."""

    name: str
    size: int = 3
    parts: list[int] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", compare=False, repr=False)


@dataclass(slots=True)
class Counter:
    """One that can be changed."""

    count: int
    doubled: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.doubled = self.count * 2


@dataclass(frozen=True, slots=True)
class Pair:
    """One that can be hashed."""

    left: int
    right: int = 2


@dataclass(frozen=True)
class Base:
    """One to derive from, without slots."""

    left: int


@dataclass(frozen=True)
class Derived(Base):
    """One that is derived."""

    right: int = 2


def _said(make: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises((TypeError, AttributeError)) as caught:
        make(*args, **kwargs)
    return str(caught.value).replace("Theirs", "Ours")


def test_it_is_a_dataclass_for_everybody_who_asks() -> None:
    made = Ours(name="a")

    assert dataclasses.is_dataclass(Ours)
    assert [field.name for field in dataclasses.fields(Ours)] == [field.name for field in dataclasses.fields(Theirs)]
    assert dataclasses.asdict(made) == dataclasses.asdict(Theirs(name="a"))
    assert dataclasses.replace(made, size=4) == Ours(name="a", size=4)
    assert Ours.__match_args__ == Theirs.__match_args__
    assert repr(made) == repr(Theirs(name="a")).replace("Theirs", "Ours")


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1,), {}), ((), {}), ((), {"name": "a", "nmae": "b"})], ids=["position", "missing", "unknown"]
)
def test_a_wrong_call_has_the_message_of_the_standard_library(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert _said(Ours, *args, **kwargs) == _said(Theirs, *args, **kwargs)
    # The second call meets the compiled constructor.
    assert _said(Ours, *args, **kwargs) == _said(Theirs, *args, **kwargs)


def test_defaults_are_made_anew_for_each_instance() -> None:
    assert Ours(name="a").parts is not Ours(name="a").parts


def test_fields_are_compared_unless_they_say_otherwise() -> None:
    assert Ours(name="a", note="x") == Ours(name="a", note="y")
    assert Ours(name="a") != Ours(name="b")
    assert Ours(name="a") != Theirs(name="a")


def test_a_frozen_one_is_hashed_by_its_fields_and_another_not_at_all() -> None:
    assert len({Pair(1), Pair(1, 2), Pair(2)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter(1))


def test_a_frozen_one_cannot_be_changed() -> None:
    made = Ours(name="a")

    for change in (lambda: setattr(made, "name", "b"), lambda: delattr(made, "name"), lambda: setattr(made, "new", 1)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()


def test_one_that_is_not_frozen_can_be_changed_and_is_completed_by_post_init() -> None:
    counter = Counter(2)
    counter.count = 5

    assert (counter.count, counter.doubled) == (5, 4)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_and_pickles_are_equal(again: Any) -> None:
    made = Ours(name="a", parts=[1])

    assert again(made) == made


def test_msgspec_reads_and_writes_it() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Pair(1)), type=Pair) == Pair(1)


def test_it_can_be_derived_from_by_ours_and_by_the_standard_one() -> None:
    @dataclasses.dataclass(frozen=True)
    class Other(Base):
        right: int = 3

    assert Derived(1) == Derived(1, 2)
    assert Other(1).right == 3


def test_a_class_that_derives_without_fields_protects_the_fields_alone() -> None:
    class Plain(Base):
        """Has attributes of its own, which are no fields."""

    made: Any = Plain(1)
    made.own = 2
    assert made.own == 2
    del made.own

    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'left'"):
        made.left = 3
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'left'"):
        del made.left
    assert (made.left, hasattr(made, "own")) == (1, False)


def test_methods_of_the_body_stay() -> None:
    @dataclass(frozen=True, slots=True)
    class Own:  # noqa: PLW1641 - the decorator adds it
        left: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    assert Own(1) == Own(2)
    assert repr(Own(1)) == "own"
    assert isinstance(hash(Own(1)), int)


def test_what_many_instances_have_is_what_the_first_one_has() -> None:
    made = [Ours(name="a", size=number % 3) for number in range(100)]
    counters = [Counter(number) for number in range(100)]

    assert set(map(repr, made)) == {repr(Theirs(name="a", size=size)).replace("Theirs", "Ours") for size in range(3)}
    assert [counter.doubled for counter in counters] == [2 * number for number in range(100)]
    assert len({id(each.parts) for each in made}) == len(made)
    assert _said(Ours, name="a", nmae="b") == _said(Theirs, name="a", nmae="b")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"left": 1}), ((1,), {"middle": 1})],
    ids=["missing", "many", "twice", "unknown"],
)
def test_a_wrong_call_by_position_has_the_message_of_the_standard_library(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    def both() -> tuple[Any, Any]:
        class One:
            left: int
            right: int = 2

        class Other:
            left: int
            right: int = 2

        return dataclass(slots=True)(One), dataclasses.dataclass(slots=True)(Other)

    ours, theirs = both()

    assert _said(ours, *args, **kwargs).replace("One", "Other") == _said(theirs, *args, **kwargs)


def test_what_belongs_to_the_class_is_no_field_and_a_default_that_could_change_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Kind:
        kind: ClassVar[str] = "a kind"
        own: int = 1

    assert [field.name for field in dataclasses.fields(Kind)] == ["own"]
    assert (Kind.kind, Kind().own, Kind.__qualname__.rpartition(".")[2]) == ("a kind", 1, "Kind")
    with pytest.raises(ValueError, match="mutable default <class 'list'> for field parts is not allowed"):

        @dataclass
        class Wrong:
            parts: list[int] = []  # noqa: RUF012 - that is what is refused


def test_defaults_of_one_without_slots_are_attributes_of_its_class() -> None:
    assert not hasattr(Base, "left")
    assert Derived.right == 2


def test_one_that_is_derived_has_all_fields_and_slots_for_its_own() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Longer(Ours):
        size: int = 7
        last: str = "z"

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Other(Theirs):
        size: int = 7
        last: str = "z"

    made, other = Longer(name="a"), Other(name="a")

    assert repr(made).replace("Longer", "Other") == repr(other)
    assert (made.__slots__, dataclasses.asdict(made)) == (other.__slots__, dataclasses.asdict(other))
    assert made == dataclasses.replace(made, note="x") != dataclasses.replace(made, last="y")
    assert made != Ours(name="a", size=7)
    for change in (lambda: setattr(made, "name", "b"), lambda: setattr(made, "last", "b")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

        @dataclass(slots=True)
        class Loose(Ours):
            other: int = 1
