"""The bash scripts in which the SDK's tools run: its environment set up, and then the tool.

The order is what matters. A library path from elsewhere (an eSDK's) makes tools end well and
produce nothing; ``envsetup.sh`` wants bash and may leave the shell in another directory.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

#: What a script ends with where ``envsetup.sh`` ended the shell that sourced it.
ENDED_BY_SETUP = 121

# The watcher ends the tool, and whatever it started, when the process that waits for it has died:
# a killed session leaves nothing that goes on computing for an hour. It ends with the tool.
_WATCHER = """\
parent_of() {
  while read -r key value; do
    if [ "$key" = PPid: ]; then printf '%s' "$value"; return; fi
  done 2>/dev/null < "/proc/$1/status"
}
tool=$$
parent=$(parent_of $tool)
(
  while sleep 1; do
    now=$(parent_of $tool)
    [ -n "$now" ] || exit 0
    [ "$now" = "$parent" ] && continue
    read -r stat 2>/dev/null < "/proc/$tool/stat"
    set -- ${stat##*) }
    if [ "$3" = "$tool" ]; then kill -KILL -- "-$tool"; else kill -KILL "$tool"; fi
    exit 0
  done
) </dev/null >/dev/null 2>&1 &
"""


def setup_lines(root: str, workdir: str, *, output: str = "/dev/null") -> str:
    """Lines that set the SDK at ``root`` up in bash and end in ``workdir``.

    What ``envsetup.sh`` prints goes to the file ``output``: it is no output of the tool.
    """
    return f"""\
unset LD_LIBRARY_PATH
export QNN_SDK_ROOT={shlex.quote(root)}
set --
exec 9>&2
trap 'echo "envsetup.sh ended the shell" >&9; exit {ENDED_BY_SETUP}' EXIT
source "$QNN_SDK_ROOT/bin/envsetup.sh" >{shlex.quote(output)} 2>&1 </dev/null
trap - EXIT
exec 9>&-
cd -- {shlex.quote(workdir)} || exit {ENDED_BY_SETUP}
"""


def tool_script(root: str, workdir: str, argv: Sequence[str]) -> str:
    """Runs ``argv`` in the SDK's environment, both streams as one, so that lines keep their order.

    The tool replaces the shell: its process is the one that is waited for, and is killed with its
    group at a time limit.
    """
    return f"{_WATCHER}{setup_lines(root, workdir)}exec {shlex.join(argv)} 2>&1\n"


def which_script(root: str, workdir: str, tools: Sequence[str]) -> str:
    """Prints ``found NAME PATH`` for each of ``tools`` in the environment, ``there NAME`` where the
    SDK has a file of that name, and ``setup LINE`` for what ``envsetup.sh`` printed.
    """
    output = f"{workdir}/envsetup.log"
    return f"""\
{setup_lines(root, workdir, output=output)}\
for tool in {shlex.join(tools)}; do
  where=$(command -v -- "$tool") && printf 'found %s %s\\n' "$tool" "$where"
  for place in "$QNN_SDK_ROOT"/bin/*/"$tool"; do
    if [ -e "$place" ]; then printf 'there %s\\n' "$tool"; fi
  done
done
sed 's/^/setup /' {shlex.quote(output)}
exit 0
"""


#: Arguments: the SDK's directory, or none to look for one. Prints ``key value`` lines.
LOOK_SCRIPT = """\
printf 'system %s\\n' "$(uname -sm)"
printf 'home %s\\n' "$HOME"
if [ $# -eq 0 ]; then
  for root in "$QNN_SDK_ROOT" /opt/qcom/aistack/qairt/*; do
    if [ -n "$root" ] && [ -f "$root/bin/envsetup.sh" ]; then printf 'candidate %s\\n' "$root"; fi
  done
  exit 0
fi
root=$1
[ -d "$root" ] && printf 'directory yes\\n'
[ -f "$root/bin/envsetup.sh" ] && printf 'envsetup yes\\n'
for place in "$root"/lib/hexagon-v*/; do
  if [ -d "$place" ]; then place=${place%/}; printf 'arch %s\\n' "${place##*/hexagon-}"; fi
done
for name in libQnnModelDlc.so libQnnHtp.so libQnnHtpNetRunExtensions.so; do
  if [ -f "$root/lib/x86_64-linux-clang/$name" ]; then printf 'library %s\\n' "$name"; fi
done
[ -f "$root/sdk.yaml" ] && sed 's/^/yaml /' "$root/sdk.yaml"
exit 0
"""
