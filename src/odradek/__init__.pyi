from odradek.client.admin.blocking import Admin as Admin
from odradek.client.consumer.blocking import Consumer as Consumer
from odradek.client.producer.blocking import Producer as Producer
from odradek.client.simple_consumer_blocking import SimpleConsumer as SimpleConsumer

__version__: str

__all__ = ["Admin", "Consumer", "Producer", "SimpleConsumer", "__version__"]
