"""Where commands find the cluster: options, files, variables, profiles, and which of them wins."""

import json
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.cli.connecting import client_settings
from odradek.cli.connection.choice import choose
from odradek.cli.connection.profiles import Profiles, profiles_path
from odradek.cli.main import build_parser
from tests.support.commands import Outcome, run_command


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a user who has nothing set yet; `set_in` adds to them."""
    variables = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    for name in ("ODRADEK_BOOTSTRAP_SERVERS", "ODRADEK_PROFILE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", variables["XDG_CONFIG_HOME"])
    return variables


def chosen(words: str, environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    typed = ["topics", "list", *words.split()]
    choice = choose(build_parser(typed).parse_args(typed), environment)
    return {key: (one.value, one.origin) for key, one in choice.settings.items()}


def add(name: str, words: str) -> Outcome:
    outcome = run_command("profile", "add", name, *words.split())
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return outcome


def test_what_says_where_the_cluster_is(environment: dict[str, str]) -> None:
    """Option before environment before profile before default."""
    assert chosen("", environment) == {"bootstrap.servers": ("localhost:9092", "the default")}
    add("p", "-b profiled:1 --use")
    assert chosen("", environment)["bootstrap.servers"] == ("profiled:1", "profile 'p'")
    add("q", "-b other:2")
    named = environment | {"ODRADEK_PROFILE": "q"}
    assert chosen("", named)["bootstrap.servers"] == ("other:2", "profile 'q'")
    told = named | {"ODRADEK_BOOTSTRAP_SERVERS": "told"}
    assert chosen("", told)["bootstrap.servers"] == ("told:9092", "ODRADEK_BOOTSTRAP_SERVERS")
    assert chosen("--profile p", told)["bootstrap.servers"] == ("profiled:1", "profile 'p'")
    typed = "--profile p -X bootstrap.servers=x:1"
    assert chosen(typed, told)["bootstrap.servers"] == ("x:1", "-X bootstrap.servers")
    typed += " -b typed"
    assert chosen(typed, told)["bootstrap.servers"] == ("typed:9092", "--bootstrap-server")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("a", "a:9092"),
        ("a,b:1,", "a:9092,b:1"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:1", "[::1]:1"),
        ("::1", "::1"),  # Which part is the port? The client refuses it.
    ],
)
def test_the_port_is_kafkas_unless_one_is_typed(
    typed: str, expected: str, environment: dict[str, str]
) -> None:
    assert chosen(f"-b {typed}", environment)["bootstrap.servers"][0] == expected


def test_a_profile_is_for_its_own_cluster(environment: dict[str, str]) -> None:
    """Its certificate is not shown to brokers that were named in another way."""
    add("live", "-b live:9093 --tls-cert me.pem --use")
    assert set(chosen("", environment)) == {
        "bootstrap.servers", "security.protocol", "ssl.keystore.location",
    }  # fmt: skip
    assert set(chosen("-b localhost", environment)) == {"bootstrap.servers"}
    told = environment | {"ODRADEK_BOOTSTRAP_SERVERS": "here"}
    assert set(chosen("", told)) == {"bootstrap.servers"}
    assert "ssl.keystore.location" in chosen("--profile live -b live-2:9093", told)


def test_a_file_of_kafkas_clients(environment: dict[str, str], tmp_path: Path) -> None:
    """Settings of other commands in it are left out; options are stronger."""
    file = tmp_path / "client.properties"
    file.write_text(
        "# Kafka's\nbootstrap.servers=filed:1\nsecurity.protocol=SSL\nacks=1\ngroup.id=g\n"
        "ssl.keystore.location=/store.pem\nclient.id=me\n"
    )
    words = ["topics", "list", "--command-config", str(file), "-X", "client.id=you"]
    arguments = build_parser(words).parse_args(words)
    settings = client_settings(arguments)
    assert settings["bootstrap.servers"] == "filed:1"
    assert settings["client.id"] == "you"
    assert settings["security.protocol"] == "SSL"
    assert not {"acks", "group.id"} & set(settings)
    assert client_settings(arguments, "producer")["acks"] == "1"
    assert client_settings(arguments, "producer", {"acks": "all"})["acks"] == "all"
    assert client_settings(arguments, "consumer")["group.id"] == "g"


def test_a_key_given_by_options_hides_the_one_of_a_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file, pem = tmp_path / "client.properties", tmp_path / "my.pem"
    file.write_text("ssl.keystore.location=/store.pem\n")
    pem.write_text("text\n")
    found = chosen(f"--command-config {file} --tls-cert {pem} --tls-key {pem}", environment)
    assert "ssl.keystore.location" not in found
    assert found["ssl.keystore.key"] == ("text", f"--tls-key {pem}")
    assert found["ssl.keystore.certificate.chain"] == ("text", f"--tls-cert {pem}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-X ssl.truststore.lokation=x", "-X ssl.truststore.lokation: unknown setting, did you "
         "mean ssl.truststore.location?"),
        ("-X sasl.mechanism=PLAIN", "-X sasl.mechanism: there is no SASL; a certificate shows the "
         "client (--tls-cert)"),
        ("-X ssl.keystore.password=x", "-X ssl.keystore.password: only PEM stores are read"),
        ("-X nonsense", "-X nonsense: expected KEY=VALUE"),
        ("-X linger.ms=5", "-X linger.ms: this command uses no setting of that name"),
        ("-X request.timeout.ms=soon", "-X request.timeout.ms soon: "),
        ("--command-config /nowhere", "--command-config /nowhere: No such file or directory"),
        ("--tls-key k.pem", "--tls-key needs --tls-cert, the certificate of that key"),
        ("--tls-cert c --tls-key /no/k", "--tls-cert c: cannot read "),
        ("--tls-cert /no/c", "--tls-cert /no/c: cannot be used: [Errno 2] No such file"),
        ("--profile p", "--profile: there is no profile 'p'; `odradek profile add` makes one"),
        ("-X ssl.key.password=env:NO_SUCH", "-X ssl.key.password: the variable NO_SUCH is not set"),
        ("-X ssl.key.password=file:/no/p", "-X ssl.key.password: cannot read /no/p: No such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(
    words: str, expected: str, environment: dict[str, str]
) -> None:
    outcome = run_command("topics", "list", *words.split())

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"odradek topics list: {expected}")
    assert outcome.err.count("\n") == 1


def test_a_mistake_in_a_file_names_the_file(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("ssl.key.passwd=secret\n")
    outcome = run_command("topics", "list", "--command-config", file)
    assert outcome.err == (
        f"odradek topics list: ssl.key.passwd (from {file}): unknown setting, did you mean "
        "ssl.key.password?\n"
    )
    file.write_text("security.protocol=SASL_SSL\n")
    outcome = run_command("topics", "list", "--command-config", file)
    assert f"security.protocol (from {file}) SASL_SSL: " in outcome.err


def test_an_option_of_the_command_is_named_instead_of_its_setting(
    environment: dict[str, str],
) -> None:
    outcome = run_command("produce", "t", "-X", "acks=1")
    assert outcome.err == "odradek produce: -X acks: give --acks instead\n"


@pytest.mark.parametrize(
    ("words", "origin"),
    [("", "(the default)"), ("-b 127.0.0.1:1", "(from --bootstrap-server)"),
     ("--profile p", "(from profile 'p')")],
)  # fmt: skip
def test_an_address_without_a_broker_names_its_origin(
    words: str, origin: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.cli.connection.choice._PORT", 1)
    add("p", "-b 127.0.0.1:1")
    outcome = run_command("topics", "list", *words.split(), "--request-timeout", 5)
    assert outcome.code == 1
    assert f":1 {origin}: " in outcome.err


def test_profiles_are_added_used_shown_and_removed(environment: dict[str, str]) -> None:
    path = Path(profiles_path(environment))
    assert run_command("profile", "list").out == ""
    assert run_command("profile", "list", terminal=True).out.startswith("no profiles; ")
    told = add("live", "-b b1:9093,b2 --tls-ca ca.pem -X ssl.key.password=env:PASSWORD")
    assert (
        told.out == f"profile live is in {path}; `odradek profile use live` makes it the current\n"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    add("test", "-b localhost --use")
    assert run_command("profile", "list").rows == [
        ["live", "", "b1:9093,b2", "SSL"],
        ["test", "yes", "localhost", "PLAINTEXT"],
    ]
    shown = run_command("profile", "show", "live").lines
    assert shown == [
        "bootstrap.servers=b1:9093,b2",
        "security.protocol=SSL",
        "ssl.key.password=env:PASSWORD",
        f"ssl.truststore.location={Path.cwd() / 'ca.pem'}",
    ]
    assert run_command("profile", "use", "live").out == "commands use profile live: b1:9093,b2\n"
    assert run_command("profile", "show", "--json").json["profile"] == "live"
    assert [one["current"] for one in run_command("profile", "list", "--json").json] == [
        True,
        False,
    ]
    assert run_command("profile", "remove", "live").out == "removed profile live, the current one\n"
    assert Profiles.load(environment).current is None
    assert run_command("profile", "use", "test").code == 0
    assert run_command("profile", "use", "--none").out == "no profile is used\n"
    assert "there are test" in run_command("profile", "show").err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("add p -b a -X ssl.key.password=secret", "profiles keep no secrets; expected env:NAME"),
        ("add p -b a -X linger=1", "unknown setting, did you mean linger.ms?"),
        ("add p -b a -X security.protocol=TLS", "-X security.protocol TLS: "),
        ("add p", "no address; expected --bootstrap-server HOST:PORT"),
        ("add known -b a", "there is a profile 'known' already; --replace overwrites it"),
        ("use p", "there is no profile 'p'; there are known"),
        ("remove p", "there is no profile 'p'; there are known"),
        ("show p", "there is no profile 'p'; there are known"),
    ],
)
def test_a_profile_that_would_not_work_is_refused(
    words: str, expected: str, environment: dict[str, str]
) -> None:
    add("known", "-b a")
    before = Path(profiles_path(environment)).read_text()
    outcome = run_command("profile", *words.split())
    assert (outcome.code, outcome.out) == (1, "")
    assert expected in outcome.err
    assert Path(profiles_path(environment)).read_text() == before


@pytest.mark.parametrize("content", ["{", "[]", '{"profiles": {"p": 1}}', '{"current": 1}'])
def test_a_broken_file_of_profiles_is_named(content: str, environment: dict[str, str]) -> None:
    path = Path(profiles_path(environment))
    path.parent.mkdir(parents=True)
    path.write_text(content)
    outcome = run_command("topics", "list")
    assert outcome.code == 1
    assert str(path) in outcome.err
    assert "odradek profile add" in outcome.err
    assert path.read_text() == content


def test_secrets_are_followed_when_a_command_connects(
    environment: dict[str, str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    variables = environment | {"PASSWORD": "from a variable"}
    add("p", "-b a -X ssl.key.password=env:PASSWORD --use")
    assert chosen("", variables)["ssl.key.password"][0] == "from a variable"
    add("p", f"-b a -X ssl.key.password=file:{secret} --replace")
    assert chosen("", variables)["ssl.key.password"][0] == "from a file"
    assert "from a" not in json.dumps(Profiles.load(environment).by_name)
