"""The controller: elects the leaders of partitions and announces them to the brokers."""

from odradek.controller.channels import ControlChannel, LocalChannel
from odradek.controller.config import ControllerConfig, LeaderBalanceConfig
from odradek.controller.driver import Controller
from odradek.metadata.admin_requests import (
    CreatePartitionsResult,
    DeletedTopic,
    ElectionOutcome,
    NewPartitions,
    NewTopic,
    ReassignmentOutcome,
    TopicResult,
)

__all__ = [
    "ControlChannel",
    "Controller",
    "ControllerConfig",
    "CreatePartitionsResult",
    "DeletedTopic",
    "ElectionOutcome",
    "LeaderBalanceConfig",
    "LocalChannel",
    "NewPartitions",
    "NewTopic",
    "ReassignmentOutcome",
    "TopicResult",
]
