"""The table of handlers: one file per API, everything in it is declared, pairs stay together."""

import inspect
from pathlib import Path

import pytest

import odradek.broker.handlers
from odradek.broker.context import RequestQuotas
from odradek.broker.dispatch import HANDLERS
from odradek.broker.quotas.client_quotas import ClientQuotas
from odradek.controller.driver import Controller
from odradek.metadata.ports import ControllerApi
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.registry import request_type, response_type

FILES = Path(odradek.broker.handlers.__file__).parent


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: key.name)
def test_what_is_served_is_declared_and_encoded(key: ApiKey) -> None:
    """11:PS-12 and 02 section 9.1: advertised, handler and codec go together."""
    support = API_SUPPORT[key]
    assert support.advertised.first <= support.advertised.last
    for version in range(support.accepted.first, support.accepted.last + 1):
        assert version in request_type(key).wire_versions
        assert version in response_type(key).wire_versions


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: key.name)
def test_each_api_has_a_file_of_its_own(key: ApiKey) -> None:
    source = inspect.getsourcefile(inspect.unwrap(HANDLERS[key]))
    assert source is not None
    assert Path(source) == FILES / f"{key.name.lower()}.py"


def test_each_file_is_served() -> None:
    names = {path.stem for path in FILES.glob("[!_]*.py")}
    assert names == {key.name.lower() for key in HANDLERS}


def test_find_coordinator_is_never_without_offset_fetch() -> None:
    """11:PS-12: librdkafka 2.16 crashes otherwise."""
    assert ApiKey.FIND_COORDINATOR not in HANDLERS or ApiKey.OFFSET_FETCH in HANDLERS


def controller_fits(controller: Controller) -> ControllerApi:
    """Checked by mypy: the real controller is what handlers expect."""
    return controller


def quotas_fit(quotas: ClientQuotas) -> RequestQuotas:
    """Checked by mypy: the real quotas are what handlers expect."""
    return quotas
