# Completion of moed(1), moed-replay(1) and moed-bench(1) for fish. The commands and the options are those that --help lists.

# The names of this user's deployments: the directories that hold one.
function __moed_deployments
    set -l base /tmp/moed-(id -u)
    test -n "$XDG_RUNTIME_DIR"; and set base $XDG_RUNTIME_DIR/moed
    for d in $base/*/
        basename $d
    end
end

function __moed_commands
    set -l program (commandline -opc)[1]
    for line in ($program --help 2>/dev/null | string match -r '^  [a-z].*')
        printf '%s\t%s\n' (string match -r '[a-z]+' -- $line) (string sub -s 35 -- $line)
    end
    printf '%s\t%s\n' help "describe a command"
end

# The options in the help of the program or, for moed, of its command.
function __moed_options
    set -l words (commandline -opc)
    set -l command $words[1]
    test (basename $command) = moed; and set -a command $words[2]
    $command --help 2>/dev/null |
        string replace -rf '^ {2,6}(?:-[a-z], )?(--?[a-zA-Z][a-z0-9-]*)(?: [^ ]+)?(?: +(.*))?$' '$1\t$2'
end

function __moed_begins_option
    string match -q -- '-*' (commandline -ct)
end

function __moed_follows -a option
    test (commandline -opc)[-1] = $option
end

# The words of the command itself are wanted: no option, and no option's value.
function __moed_argument_of
    __fish_seen_subcommand_from $argv; and not __moed_begins_option; and not __moed_follows --name
end

complete -c moed -f -n __fish_use_subcommand -a '(__moed_commands)'
complete -c moed -f -n __fish_use_subcommand -a '--help --version'
complete -c moed -f -n 'not __fish_use_subcommand; and __moed_begins_option' -a '(__moed_options)'
complete -c moed -f -n '__moed_follows --name' -a '(__moed_deployments)'
complete -c moed -f -n '__moed_argument_of down rm' -a '(__moed_deployments)'
complete -c moed -f -n '__moed_argument_of restart logs metrics' -a 'memd worker worker-2 cpuexec models http'
complete -c moed -f -n '__moed_argument_of logs' -a supervise
complete -c moed -f -n '__moed_argument_of help' -a '(__moed_commands)'
complete -c moed -n '__moed_argument_of up serve reload inspect perplexity devices' -a demo
for program in moed-replay moed-bench
    complete -c $program -f -n __moed_begins_option -a '(__moed_options)'
end
complete -c moed-bench -f -n '__moed_follows --name' -a '(__moed_deployments)'
