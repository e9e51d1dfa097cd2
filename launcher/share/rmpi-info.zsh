#compdef rmpi-info
# SPDX-License-Identifier: MIT OR Apache-2.0

autoload -U is-at-least

_rmpi-info() {
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
'--peer=[With --net\: for packets to this address or host]:ADDRESS:_hosts' \
'--search=[Show only the variables and events whose entries contain all these words; --vars, --pvars and --events restrict the search]:WORDS:_default' \
'--net[Show the network\: devices, ports, addresses, which of them ranks would use and why, and what is missing]' \
'--vars[Show the variables, with the values that hold in this shell]' \
'--pvars[Show the performance variables of MPI_T\: what the library counts for tools]' \
'--events[Show the events of MPI_T\: what the library tells tools when it happens]' \
'(--net)--json[Show variables and events as JSON; --vars, --pvars and --events restrict the output]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
}

(( $+functions[_rmpi-info_commands] )) ||
_rmpi-info_commands() {
    local commands; commands=()
    _describe -t commands 'rmpi-info commands' commands "$@"
}

if [ "$funcstack[1]" = "_rmpi-info" ]; then
    _rmpi-info "$@"
else
    compdef _rmpi-info rmpi-info
fi
