"""Following a leader: fetchers pull the records of partitions that other brokers lead.

| module               | what it holds                                                             |
|----------------------|---------------------------------------------------------------------------|
| `partition_states`   | where each followed partition stands; pure                                |
| `reconciliation`     | where a log that diverged is cut, or begins anew; pure                    |
| `session`            | the follower's side of a fetch session: requests name only changes; pure  |
| `leader_endpoint`    | the seam to the leader, and the values that pass through it               |
| `local_replica`      | what an answer does to the local log                                      |
| `local_work`         | work on logs whose steps run on storage threads                           |
| `stats`              | meters and gauges                                                         |
| `fetcher`            | the task that asks one leader                                             |
| `replica_fetchers`   | all fetchers of a broker, and which partition belongs to which            |
"""
