"""The check that a control request comes from the controller that the store names.

A request that arrives through a socket may come from any program that reaches the listener. The
store is the authority: the first request of a controller is obeyed only if `/controller` and
`/controller_epoch` name it. A request of an earlier epoch is not checked: it is refused anyway.
"""

from collections.abc import Callable

from odradek.coordination.nodes import ControllerNode, parse_controller_epoch
from odradek.coordination.paths import CONTROLLER, CONTROLLER_EPOCH
from odradek.coordination.store import CoordinationStore
from odradek.errors import ConnectionLost, NoNode
from odradek.metadata.control_requests import ControlRequest
from odradek.metadata.image import ClusterImage

__all__ = ["ControllerCheck"]


class ControllerCheck:
    """Compares the senders of control requests with the store, once per controller.

    Args:
        store: This broker's session.
        image: The image that this broker has published.
    """

    def __init__(self, store: CoordinationStore, image: Callable[[], ClusterImage]) -> None:
        self._store = store
        self._image = image
        self._known: tuple[int, int] | None = None  # Id and epoch that the store has named.

    async def check(self, request: ControlRequest) -> None:
        """Checks the sender of a request.

        Raises:
            StoreError: The store names another controller, or cannot be read: a controller that was
                just elected sends its request again.
        """
        sender = (request.controller_id, request.controller_epoch)
        if sender == self._known or request.controller_epoch < self._image().controller_epoch:
            return
        try:
            data, _ = await self._store.get(CONTROLLER)
            epoch, _ = await self._store.get(CONTROLLER_EPOCH)
        except NoNode as error:
            raise ConnectionLost(f"no controller is elected at the moment: {error}") from error
        found = (ControllerNode.parse(data).broker_id, parse_controller_epoch(epoch))
        if sender[1] < found[1]:
            return  # Deposed: refused by its epoch as soon as the next one has announced itself.
        if sender != found:
            raise ConnectionLost(
                f"a request names controller {sender[0]} of epoch {sender[1]}, the store"
                f" controller {found[0]} of epoch {found[1]}",
            )
        self._known = found
