"""What the pages for operators say is so: the lines they quote, the names, the files they show."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from odradek.broker.config import BROKER_DEFINITION, KAFKA_KEYS, TOPIC_DEFINITION
from odradek.errors import ErrorCode
from tests.support.commands import Commands, run_command
from tests.support.ports import free_port
from tests.support.served import served

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "operations"
EXAMPLES = ROOT / "examples"


def serve(*words: object) -> str:
    """The last line of a broker that must not start."""
    command = [sys.executable, "-m", "odradek.cli.main", "serve", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def quoted(heading: str) -> list[str]:
    """The first column of a section's table on the page of troubles."""
    page = (PAGES / "troubleshooting.md").read_text()
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(.+?)`(?: \(| \|)", section, re.MULTILINE)


def is_line(pattern: str, line: str) -> bool:
    """Whether a line is as the page has it, where `…` stands for anything."""
    return re.search(re.escape(pattern).replace("…", ".*"), line) is not None


def test_lines_of_a_start_that_is_refused_are_as_quoted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    any_port = ("--listen", "127.0.0.1:0")
    with served(tmp_path, *any_port, "--data", data) as broker:
        lines = [
            serve("--data", data, *any_port),
            serve("--data", tmp_path / "other", "--listen", broker.address),
        ]
        broker.stop()
    for settings in (
        "num.partitions=many",
        "process.roles=broker,controller",
        "super.users=User:a",
        "broker.id=4",
        "listeners=SSL://:1",
        "advertised.listeners=PLAINTEXT://0.0.0.0:1",
    ):
        lines.append(serve("--data", data, "--set", settings))
    patterns = [one for one in quoted("The broker does not start") if "open the logs" not in one]
    assert len(patterns) == len(lines)
    for line in lines:
        assert [one for one in patterns if is_line(one, line)], line


def test_errors_that_are_explained_exist() -> None:
    page = (PAGES / "troubleshooting.md").read_text()
    names = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", page)) - {"COORDINATOR_NOT"}
    assert len(names) > 20
    assert names <= {code.name for code in ErrorCode}


def test_errors_of_one_broker_with_settings_for_three(tmp_path: Path) -> None:
    sets = [
        word
        for key in ("default.replication.factor=3", "offsets.topic.replication.factor=3")
        for word in ("--set", key)
    ]
    with served(tmp_path, "--listen", "127.0.0.1:0", *sets) as broker:
        odradek = Commands(broker.address)
        assert "INVALID_REPLICATION_FACTOR" in odradek("topics", "create", "t").err
        created = odradek("topics", "create", "u", "--replication-factor", 1)
        assert created.code == 0


def test_the_table_of_kafkas_files_is_what_the_check_says() -> None:
    page = (PAGES / "from-kafka.md").read_text()
    files = ROOT / "tests" / "support" / "kafka_files"
    shown = run_command("serve", "--check", "--config", files / "3.9-server.properties")
    assert "17 used, 0 ignored, 0 refused" in shown.out
    assert "all 17 keys are used" in page
    shown = run_command("serve", "--check", "--config", files / "4-server.properties", "--json")
    assert set(shown.json) == {"starts", "keys"}
    assert set(shown.json["keys"][0]) == set(
        re.findall(r'"(\w+)"', page.partition('"keys": [{')[2].partition("}]")[0])
    )


def test_kernel_keys_exist_and_are_explained() -> None:
    text = (EXAMPLES / "systemd" / "60-odradek.conf").read_text()
    given = dict(re.findall(r"^([\w.]+) = (\d+)$", text, re.MULTILINE))
    page = (PAGES / "machine.md").read_text()
    assert given == dict(re.findall(r"^\| `(vm\.[\w.]+)` \| (\d+) \|", page, re.MULTILINE))
    for key in given:
        assert Path("/proc/sys", *key.split(".")).exists()


def test_the_unit_is_accepted_and_its_commands_work(tmp_path: Path) -> None:
    text = (EXAMPLES / "systemd" / "odradek.service").read_text()
    commands = dict(re.findall(r"^(ExecStart\w*)=(.*)$", text, re.MULTILINE))
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\n")

    def words(command: str) -> list[str]:
        command = command.replace("/etc/odradek", str(tmp_path))
        return command.replace("/var/lib/odradek", str(tmp_path)).split()[1:]

    assert run_command(*words(commands["ExecStartPre"])).code == 0
    with served(tmp_path, *words(commands["ExecStart"])[1:], "--listen", "127.0.0.1:0") as broker:
        assert all(json.loads(line) for line in broker.log.splitlines())
        assert broker.stop() == 0

    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here, so the unit was not verified")
    unit = tmp_path / "odradek.service"
    unit.write_text(text.replace("/opt/odradek/bin/odradek", sys.executable))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "odradek.service" in line]
    assert complaints == []


def test_the_files_for_containers_agree_with_the_broker() -> None:
    """Variables of the image and of the compose file are settings; what is mounted exists."""
    image = (ROOT / "Dockerfile").read_text()
    compose = YAML(typ="safe").load(EXAMPLES / "container" / "compose.yml")
    services = compose["services"]
    variables = dict(re.findall(r"(ODRADEK_(?!COMPILED)\w+)=(\S+)", image))
    variables |= services["broker"]["environment"]
    checked = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "serve", "--check", "--json"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    keys = json.loads(checked.stdout)["keys"]
    assert {key["fate"] for key in keys} == {"used"}
    assert len(keys) == len(variables)
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            is_named = source in compose["volumes"]
            assert is_named or (EXAMPLES / "container" / source).exists(), volume
    valid = run_command("pipeline", "validate", EXAMPLES / "container" / "orders.yaml")
    assert valid.code == 0, valid.out + valid.err
    copied = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert all((ROOT / name).exists() for name in copied)
    for line in re.findall(r"^COPY (?!--from)(.+)$", image, re.MULTILINE):
        assert set(line.split()[:-1]) <= copied


def test_the_page_of_a_package_index_has_no_relative_links() -> None:
    # Read from the text: setup.py builds when it is imported.
    source = (ROOT / "setup.py").read_text()
    space: dict[str, object] = {}
    begin = source.index("def page_of_index")
    exec("import re\n" + source[begin : source.index("def project_page")], space)
    page_of_index = space["page_of_index"]
    assert callable(page_of_index)
    readme = (ROOT / "README.md").read_text()
    for base in (None, "https://code.example/odradek"):
        page = page_of_index(readme, base)
        links = re.findall(r"\]\(([^)]*)\)", page)
        assert all(link.startswith("https://") for link in links)
        assert bool(links) is (base is not None)


def test_the_first_minute_of_the_readme(tmp_path: Path) -> None:
    """Typed as it stands, but for the port, in a fresh directory."""
    section = (ROOT / "README.md").read_text().partition("## Sixty seconds\n")[2]
    first = section.partition("In a checkout")[0]
    lines = re.findall(r"^    (.*odradek .*)$", first, re.MULTILINE)
    assert lines[0].startswith("pip install odradek ")
    assert lines[1].split()[:2] == ["odradek", "serve"]
    environment = {"ODRADEK_LISTENERS": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with served(tmp_path, environment=environment) as broker:
        shown = []
        for line in lines[2:]:
            command = f"{line} --bootstrap-server {broker.address}"
            command = command.replace("odradek", f"{sys.executable} -m odradek.cli.main", 1)
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
            )
            shown.append(done.stdout)
        assert shown == ["created greetings with 3 partitions\n", "", "hello\n"]
        assert (tmp_path / "odradek-data").is_dir()
        broker.stop()


def test_settings_that_pages_set_are_used(tmp_path: Path) -> None:
    """Every `--set` of a page is a key that a broker or a topic has."""
    known = {*BROKER_DEFINITION.keys, *TOPIC_DEFINITION.keys, *KAFKA_KEYS}
    others = {"metrics", "interval.ms", "match"}
    for page in PAGES.glob("*.md"):
        for key in re.findall(r"--set ([\w.]+)=", page.read_text()):
            assert key in known | others or key.startswith("odradek."), (page.name, key)
