"""Extensions by name: each built-in one can be loaded, and a wrong name is answered with the nearest."""

from __future__ import annotations

import pytest

from whet import plugins
from whet.errors import UnknownName


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, table in plugins.BUILT_IN.items() for name in table])
def test_each_built_in_extension_can_be_loaded(kind: plugins.Kind, name: str) -> None:
    extension = plugins.find(kind, name)

    assert isinstance(extension, type)
    assert plugins.BUILT_IN[kind][name] == f"{extension.__module__}:{extension.__name__}"
    assert name in plugins.names(kind)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match='no sandbox is called "bublewrap"') as error:
        plugins.find("sandboxes", "bublewrap")

    assert error.value.hint == 'did you mean "bubblewrap"?'


def test_a_name_like_no_other_is_answered_with_all() -> None:
    with pytest.raises(UnknownName) as error:
        plugins.find("sandboxes", "q")

    assert error.value.hint == "known: bubblewrap, container, local"
