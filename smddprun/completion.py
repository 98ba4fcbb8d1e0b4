"""The completion of smddprun's command line in bash."""

from __future__ import annotations

from smddprun import options

# Words after the command are the command's own, which bash completes as file names. So is an option's value.
_SCRIPT = """\
_smddprun() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      {values}) ((++i < COMP_CWORD)) || return 0 ;;
      -m | --) return 0 ;;
      -*) ;;
      *) return 0 ;;
    esac
  done
  case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "{words}" -- "$word") ;;
  esac
}}
complete -o default -F _smddprun smddprun smddpsinglenode
"""


def script() -> str:
    """Returns a script for bash, to be run by `eval`."""
    return _SCRIPT.format(values=" | ".join(options.with_value()), words=" ".join(options.words()))
