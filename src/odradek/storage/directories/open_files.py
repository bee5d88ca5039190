"""How many files this process may hold open."""

import logging
import resource

__all__ = ["raise_open_file_limit"]

logger = logging.getLogger(__name__)


def raise_open_file_limit() -> int:
    """Raises the soft limit on open files to the hard one; returns the limit as it is then.

    An open log costs a descriptor per segment and one per mapped index, because a mapping keeps a
    duplicate of its descriptor. The usual soft limit of 1024 is meant for programs that use
    ``select``, and is gone with a few hundred partitions.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning(
            "the limit on open files stays at %d: raising it to %d failed: %s", soft, hard, error
        )
        return soft
    return hard
