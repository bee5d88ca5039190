"""The pipeline that `odradek pipeline init` writes: every part of the file once."""

__all__ = ["EXAMPLE"]

EXAMPLE = """\
name: orders
version: 1
bootstrap: ${KAFKA:-localhost:9092}
checkpoint: ./_checkpoints
trigger: {every: 2s}
sources:
  raw:
    topic: orders
    start: earliest
    max_records: 500000
    value: {format: json, schema: "id bigint, user string, amount double, ts timestamp"}
    on_error: dlq
    watermark: {column: ts, delay: 30s}
    expect:
      - {name: positive, where: "amount > 0", action: dlq}
      - {name: has_user, where: "user is not null", action: drop}
  users:
    table: {format: parquet, path: ./users.parquet, schema: "user string, country string"}
transforms:
  named:
    sql: select r.*, u.country from raw r left join users u on r.user = u.user
  per_country:
    sql: >
      select window(ts, '1 minute') as w, country, sum(amount) as total, count(*) as n
      from named group by window(ts, '1 minute'), country
  flat:
    sql: select w.start as minute, country, total, n from per_country
sinks:
  totals: {from: flat, topic: country-totals, key: country, value: {format: json}}
  lake: {from: named, delta: {path: ./lake/orders, partition_by: [country], target_file: 128MB, compact_every: 100}}
  archive: {from: raw, files: {format: parquet, path: ./archive, max_records_per_file: 1000000}}
dlq: {topic: orders.dlq}
tests:
  - name: sums a minute and drops the negative one
    given:
      raw:
        - {id: 1, user: a, amount: 2.0, ts: "2026-01-01T00:00:10Z"}
        - {id: 2, user: a, amount: 3.0, ts: "2026-01-01T00:00:50Z"}
        - {id: 3, user: a, amount: -1.0, ts: "2026-01-01T00:00:55Z"}
      users: [{user: a, country: se}]
    expect:
      flat: [{minute: "2026-01-01T00:00:00Z", country: se, total: 5.0, n: 2}]
    dlq: [{reason: "expect:positive"}]
"""  # noqa: E501 - as it is documented
