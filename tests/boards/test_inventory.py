from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pytest_qnnctx.boards.inventory import Inventory, boards_schema, load_inventory
from pytest_qnnctx.boards.local import open_local
from pytest_qnnctx.boards.session import open_session
from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.model import Target

ROOT = Path(__file__).parents[2]

DOCUMENTED = """
boards:
  rb3-01:
    soc: qcs6490
    htp_arch: v68              # checked against the board when it is leased
    transport: ssh             # ssh | adb | local
    host: rb3-01
    tags: [lab-a]
    runtime: {lib_dir: /usr/lib}
    staging_dir: /tmp/qnnctx
    power: {cycle: ["uhubctl", "-a", "cycle", "-p", "2"]}
  phone-01: {soc: qcs6490, htp_arch: v68, transport: adb, serial: 1a2b3c4d}
"""
LOCAL = "soc: sm8550, htp_arch: v73, transport: local"


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "boards.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def refusal(write):
    """The message that a boards file is refused with."""

    def refusal(text: str) -> str:
        with pytest.raises(UsageError) as caught:
            load_inventory(write(text))
        return str(caught.value)

    return refusal


def one(write, entry: str):
    return load_inventory(write(f"boards:\n  b: {{{entry}}}\n")).boards[0]


def test_without_a_file_there_is_the_emulator():
    inventory = load_inventory(None)
    (sim,) = inventory.boards
    assert inventory.source is None
    assert (sim.name, sim.transport, sim.runner, sim.tags) == ("sim", "local", "netrun", ("sim",))
    assert sim.target == Target("QCS6490", "v68", 93, 2, False)
    assert sim.shared


def test_the_documented_example(write):
    path = write(DOCUMENTED)
    inventory = load_inventory(path)
    rb3, phone, sim = inventory.boards
    assert inventory.source == path
    assert rb3.target == Target("QCS6490", "v68", 93, 2, False)
    assert (rb3.transport, rb3.runner, rb3.settings) == ("ssh", "qnn-net-run", {"host": "rb3-01"})
    assert (rb3.tags, rb3.lib_dir, rb3.staging_dir) == (("lab-a",), "/usr/lib", "/tmp/qnnctx")
    assert rb3.power == {"cycle": ("uhubctl", "-a", "cycle", "-p", "2")}
    assert (phone.settings, phone.staging_dir) == ({"serial": "1a2b3c4d"}, "/tmp/qnnctx")
    assert not rb3.shared
    assert not phone.shared
    assert sim.name == "sim"


def test_the_example_at_the_root_loads_and_its_schema_comment_leads_somewhere():
    path = ROOT / "boards.yaml"
    assert [board.name for board in load_inventory(path).boards] == ["rb3-01", "phone-01", "sim"]
    schema = path.read_text().splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (ROOT / schema).is_file()


def test_the_schema_is_a_schema_and_describes_every_key():
    schema = boards_schema()
    Draft202012Validator.check_schema(schema)
    board = schema["$defs"]["board"]
    assert all(rule["description"] for rule in board["properties"].values())
    assert board["additionalProperties"] is False


def test_a_local_board_is_the_emulator_of_another_part(write):
    board = one(write, LOCAL + ", shared: true")
    assert (board.target.soc, board.target.htp_arch, board.target.soc_model) == (
        "SM8550",
        "v73",
        43,
    )
    assert board.runner == "netrun"
    assert board.shared


def test_the_default_staging_directory_here_is_private_to_this_user(write, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    board = one(write, LOCAL)
    assert Path(board.staging_dir).parent == tmp_path
    with open_session(board, open_local, lock_dir=tmp_path / "locks", lease_timeout_s=1):
        assert stat.S_IMODE(Path(board.staging_dir).stat().st_mode) == 0o700


def test_an_alias_of_a_soc_becomes_the_name_that_binaries_carry(write):
    assert one(write, "soc: qcm6490, htp_arch: v68, transport: local").target.soc == "QCS6490"


def test_an_unknown_soc_has_no_model_number(write):
    board = one(write, "soc: xy1234, htp_arch: v99, transport: local")
    assert board.target == Target("XY1234", "v99")


def test_a_plugins_transport_keeps_its_settings(write):
    board = one(write, "soc: x, htp_arch: v68, transport: uart, settings: {tty: /dev/ttyS0, n: 2}")
    assert (board.transport, board.settings) == ("uart", {"tty": "/dev/ttyS0", "n": 2})


def test_yaml_is_read_as_editors_read_it(write):
    board = one(
        write,
        "soc: x, htp_arch: v68, transport: adb, serial: 0123, tags: [no, 2020-01-01], "
        "power: {on: [relay, on], off: [relay, off]}",
    )
    assert board.settings == {"serial": "0123"}
    assert board.tags == ("no", "2020-01-01")
    assert board.power == {"on": ("relay", "on"), "off": ("relay", "off")}


def test_anchors_and_merges(write):
    inventory = load_inventory(
        write(
            "x-lab: &lab {soc: qcs6490, htp_arch: v68, transport: ssh, tags: [lab]}\n"
            "boards:\n  a: {<<: *lab, host: a}\n  b: {<<: *lab, host: b, tags: [desk]}\n"
        )
    )
    assert [board.tags for board in inventory.boards[:2]] == [("lab",), ("desk",)]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            "soc: x, htp_arc: v68, transport: local",
            "key htp_arc: unknown key; did you mean 'htp_arch'",
        ),
        ("soc: x, transport: local", "the key 'htp_arch' is missing"),
        ("soc: x, htp_arch: 68, transport: local", "key htp_arch: must be text, not a number"),
        ("soc: x, htp_arch: v680, transport: local", "key htp_arch: 'v680' is no good here"),
        ('soc: x, htp_arch: "v68\\n", transport: local', "line break"),
        ("soc: qcs6490, htp_arch: v73, transport: local", "HTP of QCS6490 is v68"),
        ("soc: x, htp_arch: v68, transport: ssh", "the key 'host' is missing"),
        ("soc: x, htp_arch: v68, transport: adb", "the key 'serial' is missing"),
        ("soc: x, htp_arch: v68, transport: adb, serial: 12345", "key serial: must be text"),
        ("soc: x, htp_arch: v68, transport: adb, serial: '-s'", "key serial: '-s' is no good"),
        ("soc: x, htp_arch: v68, transport: ssh, host: -oProxyCommand=x", "key host:"),
        ("soc: x, htp_arch: v68, transport: local, host: h", "belongs to 'transport: ssh'"),
        ("soc: x, htp_arch: v68, transport: local, settings: {}", "key settings: The transports"),
        ("soc: x, htp_arch: v68, transport: ssh, host: h, shared: true", "one session at a time"),
        ("soc: x, htp_arch: v68, transport: ssh, host: h, port: true", "key port: must be a whole"),
        ("soc: x, htp_arch: v68, transport: ssh, host: h, port: 0", "key port: 0 is no good here"),
        (LOCAL + ", staging_dir: tmp", "key staging_dir: 'tmp' is no good here"),
        (LOCAL + ", staging_dir: /", "key staging_dir: '/' is no good here"),
        (LOCAL + ", staging_dir: /tmp/..", "key staging_dir: must be a directory of its own"),
        (LOCAL + ", tags: lab", "key tags: must be a list, not text"),
        (LOCAL + ", tags: ['a,b']", "key tags.0: 'a,b' is no good here"),
        (LOCAL + ", tags: [sim]", "the tag 'sim' belongs to the built-in emulator"),
        (LOCAL + ", power: {cycle: reboot}", "key power.cycle: must be a list"),
        (LOCAL + ", power: {cylce: [x]}", "key power.cylce: unknown key; did you mean 'cycle'"),
        (LOCAL + ", runtime: {libdir: /usr/lib}", "unknown key; did you mean 'lib_dir'"),
    ],
)
def test_each_mistake_is_named_with_file_line_board_and_key(refusal, entry, expected):
    message = refusal(f"boards:\n\n  b: {{{entry}}}\n")
    assert "boards.yaml:3: board 'b'" in message
    assert expected in message


def test_a_mistake_in_what_overrides_a_merged_key_has_its_own_line(refusal):
    message = refusal(
        "x-lab: &lab\n  soc: x\n  htp_arch: v68\n  transport: local\n"
        "boards:\n  a:\n    <<: *lab\n    htp_arch: 68\n"
    )
    assert "boards.yaml:8: board 'a', key htp_arch" in message


@pytest.mark.parametrize("name", ["a b", "a/b", "a//b", "a=b", "", ".a", "a" * 65])
def test_a_name_must_fit_xdist_and_file_names(refusal, name):
    assert "is no name for a board" in refusal(f"boards:\n  '{name}': {{{LOCAL}}}\n")


@pytest.mark.parametrize("name", ["sim", "Sim"])
def test_the_emulators_name_is_taken(refusal, name):
    assert "built-in emulator" in refusal(f"boards:\n  {name}: {{{LOCAL}}}\n")


def test_all_mistakes_come_at_once_in_the_files_order(refusal):
    message = refusal("boards:\n  z: {soc: 1}\n  a: {htp_arch: 2}\nbord: 1\n")
    lines = [line for line in message.splitlines() if line.startswith("  - ")]
    assert [line.split(":")[1] for line in lines] == sorted(line.split(":")[1] for line in lines)
    assert "boards.yaml:4: key bord: unknown key; did you mean 'boards'?" in message
    assert "board 'a'" in message


@pytest.mark.parametrize(
    "text",
    [
        f"boards:\n  a: {{{LOCAL}}}\n  a: {{{LOCAL}}}\n",
        "boards:\n  a:\n    soc: x\n    soc: y\n",
    ],
)
def test_a_key_that_is_there_twice_is_refused(refusal, text):
    assert "is there twice, first in line" in refusal(text)


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ("transport: ssh, host: rb3", "transport: ssh, host: RB3, port: 22", "key host"),
        ("transport: adb, serial: abc", "transport: adb, serial: abc", "key serial"),
    ],
)
def test_one_physical_board_in_two_entries_is_refused(refusal, first, second, key):
    part = "soc: x, htp_arch: v68"
    message = refusal(f"boards:\n  a: {{{part}, {first}}}\n  b: {{{part}, {second}}}\n")
    assert f"boards.yaml:3: board 'b', {key}: is that of board 'a' too" in message


def test_names_that_differ_by_case_only_are_refused(refusal):
    assert "case of letters" in refusal(f"boards:\n  a: {{{LOCAL}}}\n  A: {{{LOCAL}}}\n")


@pytest.mark.parametrize(
    "entry",
    [
        "password: hunter2",
        "ssh_passwd: hunter2",
        "settings: {auth: {api-key: hunter2}}",
        "power: {token: [hunter2]}",
        "host: 'root:hunter2@rb3'",
        "power: {cycle: [curl, 'http://admin:hunter2@pdu/cycle']}",
        "power: {cycle: [pdu, --password=hunter2]}",
        "user: '-----BEGIN OPENSSH PRIVATE KEY----- hunter2'",
    ],
)
def test_secrets_are_refused_and_not_repeated(refusal, entry):
    message = refusal(f"boards:\n  b: {{soc: x, {entry}}}\n")
    assert "boards.yaml:2: board 'b', key" in message
    assert "committed and shown in reports" in " ".join(message.split())
    assert "hunter2" not in message


def test_a_secret_under_a_misspelt_key_or_in_broken_yaml_is_not_repeated(refusal):
    assert "hunter2" not in refusal(f"boards:\n  b: {{{LOCAL}, pasword: hunter2}}\n")
    assert "hunter2" not in refusal("boards:\n  b: {password: hunter2\n  : ]\n")


def test_a_board_may_be_called_token(write):
    assert load_inventory(write(f"boards:\n  token-ring: {{{LOCAL}}}\n")).boards[0].name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("[]", "must be a mapping, not a list"),
        ("boards:", "key boards: must be a mapping, not empty"),
        ("boards: {", "boards.yaml:1 cannot be understood"),
        ("boards: &a {b: *a}", "a value contains itself"),
        ("boards: {1: {}}", "a key is not text"),
        ("boards: {[a]: {}}", "a key is not text"),
        ("--- a\n--- b", "another document"),
        ("boards: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("boards: !!int abc", "does not fit its type"),
        ("boards: " + "[" * 5000, "nested too deeply"),
        ("boards: \x07", "it is no text"),
        ("#" * 300_000, "larger than 256 KiB"),
    ],
)
def test_what_is_no_inventory_at_all(refusal, text, expected):
    assert expected in refusal(text)


def test_aliases_that_expand_without_end_are_refused_at_once(refusal):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert "aliases expand to more than" in refusal("\n".join(lines))


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match="cannot be read") as caught:
            load_inventory(path)
        assert "--board sim needs no file" in str(caught.value)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.sampled_from(["qcs6490", "v68", "ssh", "adb", "local", "/tmp/x", "a,b", "-x", "sim"]),
)
KNOWN = ("soc", "htp_arch", "transport", "host", "port", "serial", "tags", "shared", "runtime")
KNOWN += ("lib_dir", "power", "cycle", "staging_dir", "settings", "sim", "x-a", "boards")
KEYS = st.one_of(st.sampled_from(KNOWN), st.text(max_size=6))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(KEYS, SCALARS), inner, max_size=6)
    ),
    max_leaves=12,
)
ENTRIES = st.fixed_dictionaries(
    {
        "soc": st.sampled_from(["qcs6490", "sm8550", "x", 7]),
        "htp_arch": st.sampled_from(["v68", "v73", 68]),
        "transport": st.sampled_from(["ssh", "adb", "local", "uart", None]),
    },
    optional=dict.fromkeys(
        ("host", "serial", "port", "tags", "shared", "staging_dir", "power", "runtime"), VALUES
    ),
)
FILES = st.one_of(
    VALUES,
    VALUES.map(lambda value: {"boards": value}),
    st.dictionaries(KEYS, ENTRIES, max_size=3).map(lambda boards: {"boards": boards}),
)


def loads_or_is_refused(path: Path) -> None:
    """Nothing but an Inventory or a UsageError with a sentence comes out."""
    try:
        inventory = load_inventory(path)
    except UsageError as error:
        assert str(path.name) in str(error)
        assert error.next_step
    else:
        assert isinstance(inventory, Inventory)
        assert inventory.boards[-1].name == "sim"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=FILES)
def test_no_data_gives_a_traceback(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "generated-data.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True), "utf-8", "surrogatepass")
    loads_or_is_refused(path)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("ab:- \n{}[],&*!<'\"#|>%@`?~0.9\tx")))
@example(text="!!timestamp a")
@example(text="!!float a")
@example(text="!!bool a")
@example(text="!!int ''")
@example(text="!!set {a, b}")
@example(text="!!binary é")
@example(text="? {a: b}\n: c")
@example(text="<<: a")
@example(text="a: " + "9" * 5000)
@example(text="=: a")
def test_no_text_gives_a_traceback(text, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "generated-text.yaml"
    path.write_text(text)
    loads_or_is_refused(path)


@settings(max_examples=150, deadline=None)
@given(cut=st.integers(0, len(DOCUMENTED)), length=st.integers(0, 12), put=st.binary(max_size=4))
def test_no_damage_to_a_good_file_gives_a_traceback(cut, length, put, tmp_path_factory):
    raw = DOCUMENTED.encode()
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    path.write_bytes(raw[:cut] + put + raw[cut + length :])
    loads_or_is_refused(path)
