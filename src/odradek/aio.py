"""The clients, awaited: the same names as in `odradek`, for programs that run an event loop."""

from odradek.client.admin.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.producer.producer import Producer
from odradek.client.simple_consumer import SimpleConsumer

__all__ = ["Admin", "Consumer", "Producer", "SimpleConsumer"]
