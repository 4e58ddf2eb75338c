"""An order opens only with its key, and leaves out what is about one machine."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidTag

from whet.cluster._order import map_back, new_key, seal, shared_key, travelling, unseal


def test_only_the_process_that_made_the_key_opens_an_order() -> None:
    (driver, public), (node, of_node), (other, _) = new_key(), new_key(), new_key()

    closed = seal(b"MY_KEY=sk-1234", shared_key(driver, of_node))

    assert b"sk-1234" not in closed
    assert unseal(closed, shared_key(node, public)) == b"MY_KEY=sk-1234"
    with pytest.raises(InvalidTag):
        unseal(closed, shared_key(other, public))
    with pytest.raises(InvalidTag):
        unseal(closed[:-1] + bytes([closed[-1] ^ 1]), shared_key(node, public))


def test_variables_of_this_machine_stay_here() -> None:
    environ = {"PATH": "/bin", "HOME": "/home/me", "RAY_ADDRESS": "x", "MY_KEY": "1", "WHET_SERVICE_HIDDEN": "/data"}
    environ |= {"DOCKER_HOST": "unix:///run/docker.sock", "CONTAINERS_CONF": "/etc/mine.conf"}

    assert travelling(environ) == {"MY_KEY": "1", "WHET_SERVICE_HIDDEN": "/data"}


def test_paths_of_a_node_become_those_of_the_driver() -> None:
    assert map_back(b'{"file": "/n/p/suite.py"}', {"/n/p": "/home/me/p"}) == b'{"file": "/home/me/p/suite.py"}'
