#compdef rmpi-queues
# SPDX-License-Identifier: MIT OR Apache-2.0

autoload -U is-at-least

_rmpi-queues() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'--graph=[Draw who waits for whom into a file (SVG)]:FILE:_files' \
'--library=[Ask this library for debuggers, if it does not lie where the ranks'\'' MPI says]:FILE:_files' \
'*--debug-info=[Take the types of the ranks'\'' MPI from here, if its libraries were stripped (another MPI'\''s; rmpi needs none)]:FILE:_files' \
'--all[Leave nothing out\: every rank and every message, however many they are]' \
'--json[Write for programs\: one object with the verdict, what each rank waits for, and all queues]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
':pid -- The process of rmpiexec or of any rank of its job (of another MPI\: of its launcher, or of a rank for that alone):_default' \
&& ret=0
}

(( $+functions[_rmpi-queues_commands] )) ||
_rmpi-queues_commands() {
    local commands; commands=()
    _describe -t commands 'rmpi-queues commands' commands "$@"
}

if [ "$funcstack[1]" = "_rmpi-queues" ]; then
    _rmpi-queues "$@"
else
    compdef _rmpi-queues rmpi-queues
fi
