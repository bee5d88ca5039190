"""DescribeConfigs: the numbers of sources and types that clients get."""

import pytest

from odradek.broker.config.describe import CONFIG_SOURCES, row_of
from odradek.config import Definition, Kind, Settings, SettingSource
from odradek.protocol.enums import ConfigType
from tests.unit.config.declared_configs import SocketConfig


def test_each_source_has_its_number() -> None:
    assert [int(CONFIG_SOURCES[source]) for source in SettingSource] == [5, 4, 4, 4, 3, 2, 1, 7, 8]


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_of_value_is_a_type(kind: Kind) -> None:
    assert ConfigType[kind.name].name == kind.name


def test_a_row_tells_type_and_source() -> None:
    settings = Settings.from_sources(
        Definition(SocketConfig), file={"num.network.threads": "4", "broker.id": "1"}
    )

    row = row_of(settings.get("num.network.threads"))

    assert (row.type, row.source) == (3, 4)
    assert [(synonym.name, int(synonym.source)) for synonym in row.synonyms] == [
        ("num.network.threads", 4),
        ("num.network.threads", 5),
    ]
