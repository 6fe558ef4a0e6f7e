#compdef moed moed-replay moed-bench
# Completion of moed(1), moed-replay(1) and moed-bench(1) for zsh. The commands and the options are those that --help lists.

# The names of this user's deployments: the directories that hold one.
_moed_deployments()
{
    local base=${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/moed}
    local -a names
    names=(${base:-/tmp/moed-$UID}/*(N/:t))
    _describe deployment names
}

_moed_commands()
{
    local -a commands
    commands=(${(f)"$($1 --help 2>/dev/null | sed -nE 's/^  ([a-z]+)( .*)$/\1\2/; T; s/^(.{32})/\1\t/; s/^([a-z]+)[^\t]*\t/\1:/p')"} 'help:describe a command')
    _describe command commands
}

# _moed_options COMMAND...: the options in its help.
_moed_options()
{
    local -a options
    options=(${(f)"$($@ --help 2>/dev/null | sed -nE 's/^ {2,6}(-[a-z], )?(--?[a-zA-Z][a-z0-9-]*)( [^ ]+)?( +(.*))?$/\2:\5/p')"})
    _describe -o option options
}

_moed_processes()
{
    local -a processes
    processes=(memd worker worker-2 cpuexec models http)
    [[ $1 != logs ]] || processes+=(supervise)
    _describe process processes
}

_moed_models()
{
    local -a demo
    demo=('demo:the model that comes with moed')
    _describe model demo
    _files -g '*.gguf(-.)'
}

_moed()
{
    local program=${(Q)words[1]} verb=$words[2] current=$words[CURRENT] previous=$words[CURRENT-1]
    if [[ $previous == --name ]]; then
        _moed_deployments
    elif [[ ${program:t} != moed ]]; then
        if [[ $current == -* ]]; then _moed_options $program; else _files; fi
    elif ((CURRENT == 2)) && [[ $current == -* ]]; then
        local -a options
        options=(--help --version)
        _describe -o option options
    elif ((CURRENT == 2)); then
        _moed_commands $program
    elif [[ $current == -* ]]; then
        _moed_options $program $verb
    else
        case $verb in
        help) _moed_commands $program ;;
        down | rm) _moed_deployments ;;
        restart | logs | metrics) _moed_processes $verb ;;
        up | serve | reload | inspect | perplexity | devices) _moed_models ;;
        *) _files ;;
        esac
    fi
}

_moed "$@"
