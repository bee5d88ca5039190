"""The complete example: it is read into the model as it is meant."""

from pathlib import Path

from odradek.spark.pipeline.file import load
from odradek.spark.pipeline.graph.model import (
    Action,
    DeltaTarget,
    FilesTarget,
    JsonCodec,
    OnError,
    TableInput,
    TopicInput,
    TopicTarget,
    TriggerKind,
    Watermark,
)
from tests.unit.spark.pipeline.files import EXAMPLE


def test_the_complete_example_is_read(tmp_path: Path) -> None:
    """12:SP-46 12:SP-48 12:SP-53."""
    file = tmp_path / "orders.yaml"
    file.write_text(EXAMPLE)

    loaded = load(str(file), environment={})

    assert loaded.problems == ()
    pipeline = loaded.pipeline
    assert pipeline is not None
    assert (pipeline.name, pipeline.bootstrap) == ("orders", "localhost:9092")
    assert pipeline.checkpoint == str(tmp_path / "_checkpoints")
    assert (pipeline.trigger.kind, pipeline.trigger.interval_ms) == (TriggerKind.EVERY, 2000)
    raw, users = pipeline.sources["raw"], pipeline.sources["users"]
    assert isinstance(raw.input, TopicInput)
    assert raw.input.topics == ("orders",)
    assert raw.input.max_records == 500_000
    assert raw.input.on_error is OnError.DLQ
    assert raw.input.value == JsonCodec("id bigint, user string, amount double, ts timestamp")
    assert raw.watermark == Watermark("ts", 30_000)
    assert [(rule.name, rule.action) for rule in raw.expect] == [
        ("positive", Action.DLQ),
        ("has_user", Action.DROP),
    ]
    assert users.input == TableInput(
        "parquet", str(tmp_path / "users.parquet"), "user string, country string"
    )
    assert not users.is_stream
    assert {name: step.inputs for name, step in pipeline.transforms.items()} == {
        "named": ("raw", "users"),
        "per_country": ("named",),
        "flat": ("per_country",),
    }
    totals = pipeline.sinks["totals"].target
    assert isinstance(totals, TopicTarget)
    assert (totals.topic, totals.key, totals.value) == ("country-totals", "country", JsonCodec())
    lake = DeltaTarget(str(tmp_path / "lake/orders"), ("country",), 128 << 20, 100, ())
    assert pipeline.sinks["lake"].target == lake
    archive = FilesTarget("parquet", str(tmp_path / "archive"), (), 1_000_000, {})
    assert pipeline.sinks["archive"].target == archive
    assert pipeline.dead_letters is not None
    assert pipeline.tests[0].given["users"] == ({"user": "a", "country": "se"},)
    assert pipeline.tests[0].dlq == ({"reason": "expect:positive"},)
