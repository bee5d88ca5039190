"""JAAS files, as Java reads them."""

import pytest

from odradek.config.jaas import JaasError, LoginModule, parse_jaas

TEXT = r"""
// The brokers' own login.
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule Required
    username="admin" password='a b' ;
};
/* Of the way
   to ZooKeeper. */
Client { x.DigestLoginModule required username=kafka password = "p\"\\\t\101{};//é" debug=true;
         y.Other optional; };
Empty{};
"""


def test_sections_modules_and_options() -> None:
    plain = {"username": "admin", "password": "a b"}
    digest = {"username": "kafka", "password": 'p"\\\tA{};//é', "debug": "true"}
    assert parse_jaas(TEXT) == {
        "KafkaServer": (
            LoginModule("org.apache.kafka.common.security.plain.PlainLoginModule", plain),
        ),
        "Client": (LoginModule("x.DigestLoginModule", digest), LoginModule("y.Other", {})),
        "Empty": (),
    }
    assert parse_jaas("") == {}
    assert "a b" not in repr(parse_jaas(TEXT))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Client", "line 1: expected {"),
        ("\nClient }", "line 2: expected {"),
        ("{", "line 1: expected the name of a section"),
        ("Client {\n};\nClient { };", "line 3: expected a section of another name"),
        ("Client { M", "expected required or another flag"),
        ("Client { M always; };", "expected one of required, requisite"),
        ("Client {\n M required user }", "line 2: expected ="),
        ("Client { M required user=; };", "expected the option's value"),
        ("Client { M required user=s3cret }", "expected an option or ;"),
        ("Client { M required; }", "line 1: expected ;"),
        ('Client { M required\n p="s3cret\n"; };', "line 2: expected the end of a quoted value"),
        ("Client { /* M", "expected"),
        ('Client { M required p="${s3cret}"; };', r"line 1: expected a value without \$\{"),
    ],
)
def test_another_text_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(JaasError, match=message) as refusal:
        parse_jaas(text)
    assert "s3cret" not in str(refusal.value)
