"""``.qualcomm-env`` is read as data, counts when it is whole, and never shows what is in it."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.errors import UsageError
from pytest_qnnctx.qualcomm_env import KEYS, NAME, load_qualcomm_env
from pytest_qnnctx.shell_assignments import parse_assignments

WHOLE = "QC_SETUP_VERSION=1\n"


@pytest.fixture
def load(tmp_path):
    """Loads a file with the given content from a project's root."""
    (tmp_path / "root").mkdir()
    (tmp_path / "home").mkdir()

    def load(content=None, *, home=None, environ=None):
        for folder, text in (("root", content), ("home", home)):
            if text is not None:
                path = tmp_path / folder / NAME
                path.write_bytes(text if isinstance(text, bytes) else text.encode())
                path.chmod(0o600)
        return load_qualcomm_env(tmp_path / "root", tmp_path / "home", environ or {})

    return load


def test_no_file_is_no_mistake(load):
    env = load()
    assert (env.source, env.get("QC_HTP_ARCH"), env.values, env.warnings) == (None, "", {}, ())


def test_the_root_comes_before_the_home(load, tmp_path):
    env = load("QC_HTP_ARCH=v68\n" + WHOLE, home="QC_HTP_ARCH=v73\nQC_SOC_ID=498\n" + WHOLE)
    assert (env.get("QC_HTP_ARCH"), env.get("QC_SOC_ID")) == ("v68", "")
    assert env.source == tmp_path / "root" / NAME
    assert env.origins["QC_HTP_ARCH"] == f"line 1 of {env.source}"


def test_the_home_counts_where_the_root_has_none(load, tmp_path):
    env = load(home="QC_HTP_ARCH=v73\n" + WHOLE)
    assert env.get("QC_HTP_ARCH") == "v73"
    assert env.source == tmp_path / "home" / NAME


def test_the_environment_wins_for_each_key(load):
    environ = {"QC_HTP_ARCH": "v73", "QC_SOC_ID": "", "QC_OTHER": "x", "QC_SETUP_VERSION": "9"}
    env = load("QC_HTP_ARCH=v68\nQC_SOC_ID=498\n" + WHOLE, environ=environ)
    assert (env.get("QC_HTP_ARCH"), env.get("QC_SOC_ID")) == ("v73", "498")
    assert env.origins["QC_HTP_ARCH"] == "environment variable QC_HTP_ARCH"
    assert "QC_OTHER" not in env.values
    assert env.get("QC_SETUP_VERSION") == "1"


def test_the_sdk_goes_by_two_names_in_the_environment(load):
    content = "QC_QNN_SDK_ROOT=/file\nQC_QAIRT_VERSION=2.37.1\n" + WHOLE
    both = {"QNN_SDK_ROOT": "/sdk", "QC_QNN_SDK_ROOT": "/qc"}
    assert load(content).get("QC_QNN_SDK_ROOT") == "/file"
    env = load(content, environ={"QNN_SDK_ROOT": "/sdk"})
    assert env.get("QC_QNN_SDK_ROOT") == "/sdk"
    assert env.get("QC_QAIRT_VERSION") == "2.37.1"
    assert "QNN_SDK_ROOT" in env.origins["QC_QNN_SDK_ROOT"]
    assert load(content, environ=both).get("QC_QNN_SDK_ROOT") == "/qc"


def test_the_environment_alone_will_do(load):
    assert load(environ={"QC_BUILD_HOST": "buildbox"}).get("QC_BUILD_HOST") == "buildbox"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("QC_HTP_ARCH=v68\n", "missing or empty"),
        ("", "missing or empty"),
        ("QC_SETUP_VERSION=\n", "missing or empty"),
        ("QC_SETUP_VERSION=soon\n", "no number"),
        ("QC_SETUP_VERSION=0\n", "older setup"),
        ("QC_SETUP_VERSION=2\n", "newer setup"),
    ],
)
def test_a_half_written_file_does_not_count(load, content, said, tmp_path):
    with pytest.raises(UsageError, match=said) as caught:
        load(content, home=WHOLE)
    assert str(tmp_path / "root" / NAME) in str(caught.value)
    if "newer" not in said:
        assert "half-written" in str(caught.value)
        assert "QC_SETUP_VERSION=1" in caught.value.next_step
        assert "qnnctx doctor" in caught.value.next_step


def test_shell_style(load):
    env = load(
        b"\xef\xbb\xbf# made by hand\r\n"
        b"\r\n"
        b"export QC_BUILD_HOST=user@host # where the SDK is\r\n"
        b"  QC_QNN_SDK_ROOT='/opt/the sdk/$x'\r\n"
        b'QC_ESDK_ENV="/opt/\\"quoted\\"/a\\\\b\\n"   \r\n'
        b"QC_SOC_MACHINE=a\\ b'c d'\"e\"#f~g\r\n"
        b"QC_BOARD_HOST=\r\n"
        b"QC_BOARD_JUMP= # none\r\n"
        b"QC_SETUP_VERSION=1"
    )
    assert env.values == {
        "QC_BUILD_HOST": "user@host",
        "QC_QNN_SDK_ROOT": "/opt/the sdk/$x",
        "QC_ESDK_ENV": '/opt/"quoted"/a\\b\\n',
        "QC_SOC_MACHINE": "a bc de#f~g",
        "QC_BOARD_HOST": "",
        "QC_BOARD_JUMP": "",
        "QC_SETUP_VERSION": "1",
    }


@pytest.mark.parametrize(
    "line",
    [
        "QC_HTP_ARCH=$(touch hidden-words)",
        "QC_HTP_ARCH=`touch hidden-words`",
        'QC_HTP_ARCH="$(touch hidden-words)"',
        "QC_HTP_ARCH=$hidden_words",
        'QC_HTP_ARCH="${hidden_words}"',
        "QC_HTP_ARCH=v68; touch hidden-words",
        "QC_HTP_ARCH=v68 & touch hidden-words",
        "QC_HTP_ARCH=v68 touch hidden-words",
        "QC_HTP_ARCH=v68 | hidden-words",
        "QC_HTP_ARCH=v68 >hidden-words",
        "QC_HTP_ARCH= hidden-words",
        "QC_HTP_ARCH=~/hidden-words",
        "QC_HTP_ARCH=/a:~/hidden-words",
        "QC_HTP_ARCH='hidden-words",
        'QC_HTP_ARCH="hidden-words',
        'QC_HTP_ARCH="hidden-words\\"',
        "QC_HTP_ARCH=hidden-words\\",
        "QC_HTP_ARCH = hidden-words",
        "QC_HTP_ARCH: hidden-words",
        "hidden-words",
        "2=hidden-words",
        "source hidden-words",
        "QC_HTP_ARCH=(hidden-words)",
        "QC_HTP_ARCH=hidden\rwords",
        "QC_HTP_ARCH=hidden\0words",
        "QC_SOC_ID=hidden-words",
    ],
)
def test_what_is_no_assignment_is_refused_and_not_shown(load, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="line 2: ") as caught:
        load(f"QC_SOC_ID=498\n{line}\n{WHOLE}")
    assert "words" not in str(caught.value)
    assert not (tmp_path / "hidden-words").exists()


def test_a_key_given_twice_names_both_lines(load):
    with pytest.raises(UsageError, match=r"line 3: QC_SOC_ID was already given in line 1"):
        load(f"QC_SOC_ID=1\n{WHOLE}QC_SOC_ID=1\n")


@pytest.mark.parametrize(
    "key",
    [
        "QC_BOARD_PASSWORD",
        "qc_board_password",
        "BoardPasswd",
        "QC_SSH_KEY",
        "QC_SSH_KEY_FILE",
        "KEY",
        "API_KEYS",
        "APIKEY",
        "QC_TOKEN",
        "GITHUB_TOKEN",
        "AUTHTOKEN",
        "QC_PASSPHRASE",
        "QC_BOARD_PASS",
        "MY_SECRET_THING",
        "AWS_CREDENTIALS",
        "QC_BOARD_PWD",
    ],
)
def test_a_credential_is_refused_and_not_shown(load, key):
    with pytest.raises(UsageError, match=f"line 2: {key} looks like a credential") as caught:
        load(f"QC_SOC_ID=1\nexport {key}='hunter2'\n{WHOLE}")
    assert "hunter2" not in str(caught.value)


def test_harmless_keys_are_no_credentials(load):
    keys = ("QC_MONKEY", "QC_KEYBOARD", "QC_COMPASS", "QC_PASSES", "QC_TOKENIZER", "QC_BYPASS_X")
    env = load("".join(f"{key}=x\n" for key in keys) + WHOLE)
    assert env.unknown == keys
    assert not any(key in keys for key in KEYS)


@pytest.mark.parametrize("key", ["QC_BUILD_HOST", "QC_BOARD_HOST", "QC_BOARD_JUMP"])
@pytest.mark.parametrize("value", ["me:hunter2@box", "ssh://me:hunter2@box:22", "me:hunter2@@box"])
def test_a_password_within_a_host_is_refused_and_not_shown(load, key, value):
    for content, environ in ((f"{key}={value}\n{WHOLE}", {}), (WHOLE, {key: value})):
        with pytest.raises(UsageError, match=f"{key} .* holds a password") as caught:
            load(content, environ=environ)
        assert "hunter2" not in str(caught.value)


def test_hosts_without_a_password(load):
    content = f"QC_BUILD_HOST=me@box:22\nQC_BOARD_JUMP=me@a:22,you@b\n{WHOLE}"
    assert load(content).get("QC_BOARD_JUMP") == "me@a:22,you@b"


def test_need_says_which_key_why_and_where(load, tmp_path):
    why = "the build must know its architecture"
    for content, said in (
        (None, f"there is no {NAME}"),
        (WHOLE, f"'{tmp_path / 'root' / NAME}' does not have it"),
        ("QC_HTP_ARCH=\n" + WHOLE, f"'{tmp_path / 'root' / NAME}' leaves it empty"),
    ):
        env = load(content)
        with pytest.raises(UsageError) as caught:
            env.need("QC_HTP_ARCH", why)
        message = str(caught.value)
        for part in ("QC_HTP_ARCH", KEYS["QC_HTP_ARCH"], why, said, "in the environment"):
            assert part in message
    assert load("QC_HTP_ARCH=v68\n" + WHOLE).need("QC_HTP_ARCH", why) == "v68"


def test_need_knows_the_other_name_of_the_sdk(load):
    with pytest.raises(UsageError, match="QC_QNN_SDK_ROOT or QNN_SDK_ROOT in the environment"):
        load(WHOLE).need("QC_QNN_SDK_ROOT", "it builds")


def test_shown_lists_what_has_a_value(load):
    env = load("QC_BUILD_HOST=\nOTHER=x\nQC_SOC_ID=498\n" + WHOLE, environ={"QC_HTP_ARCH": "v68"})
    assert [row[:2] for row in env.shown()] == [
        ("QC_SETUP_VERSION", "1"),
        ("QC_HTP_ARCH", "v68"),
        ("QC_SOC_ID", "498"),
    ]
    assert env.unknown == ("OTHER",)


@pytest.mark.parametrize(
    ("mode", "said"), [(0o600, ""), (0o400, ""), (0o644, "can read"), (0o620, "can change")]
)
def test_a_file_that_others_can_read_is_warned_of(tmp_path, mode, said):
    (tmp_path / NAME).write_text(WHOLE)
    (tmp_path / NAME).chmod(mode)
    warnings = load_qualcomm_env(tmp_path, tmp_path, {}).warnings
    assert len(warnings) == bool(said)
    assert said in "".join(warnings)


def test_what_is_no_readable_file(tmp_path):
    path = tmp_path / NAME

    def refused(said):
        with pytest.raises(UsageError, match=said) as caught:
            load_qualcomm_env(tmp_path, tmp_path, {})
        assert str(path) in str(caught.value)

    path.mkdir()
    refused("cannot be read")
    path.rmdir()
    os.mkfifo(path)  # reading it would wait for ever
    refused("no regular file")
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    refused("cannot be read")
    path.unlink()
    path.write_bytes(b"QC_SOC_ID=1\nQC_SOC_MACHINE=\xff\n")
    refused("line 2: it is not UTF-8")
    path.write_bytes(b"#" * ((1 << 20) + 1))
    refused("larger than 1 MB")


def test_a_file_without_permission(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (tmp_path / NAME).write_text(WHOLE)
    (tmp_path / NAME).chmod(0)
    with pytest.raises(UsageError, match="cannot be read"):
        load_qualcomm_env(tmp_path, tmp_path, {})


VALUES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40)


def _double_quote(value: str) -> str:
    return '"' + "".join("\\" + c if c in '"\\$`' else c for c in value) + '"'


def _single_quote(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


@given(VALUES, st.sampled_from([_double_quote, _single_quote]))
@settings(max_examples=60)
def test_quoted_values_come_back(value, quote):
    (found,) = parse_assignments(f"\nKEY={quote(value)} # comment\n", "file")
    assert (found.key, found.value, found.line) == ("KEY", value, 2)


LINES = st.lists(
    st.builds(
        "{}{}={}{}".format,
        st.sampled_from(["", "export ", " "]),
        st.sampled_from("AB"),
        st.text("ab \\'\"#~:$=\t", max_size=12),
        st.sampled_from(["", " # x", ";"]),
    ),
    max_size=1,
)


@given(LINES)
@settings(max_examples=60)
def test_what_is_taken_is_what_a_shell_takes(lines):
    text = "\n".join(lines)
    try:
        found = parse_assignments(text, "file")
    except UsageError:
        return
    shown = 'printf "[%s][%s]" "$A" "$B"'
    ran = subprocess.run(
        ["/bin/sh", "-c", f"{text}\n{shown}"],
        env={"HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    values = {assignment.key: assignment.value for assignment in found}
    assert ran.stdout == f"[{values.get('A', '')}][{values.get('B', '')}]"


@given(st.one_of(st.text(max_size=200), LINES.map("\n".join)))
@settings(max_examples=100)
def test_no_text_does_anything_but_a_usage_error(text):
    try:
        parse_assignments(text, "file")
    except UsageError as error:
        assert "line" in str(error)
