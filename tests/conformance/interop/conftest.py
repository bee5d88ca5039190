"""Lets the checks say what they expected, though their modules are not tests by name."""

import pytest

pytest.register_assert_rewrite(
    "tests.conformance.interop.admin_checks",
    "tests.conformance.interop.consumer_checks",
    "tests.conformance.interop.producer_transaction_checks",
    "tests.conformance.interop.raw_checks",
    "tests.conformance.interop.transaction_checks",
    "tests.conformance.interop.transaction_tool_checks",
)
