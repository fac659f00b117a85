# SPDX-License-Identifier: MIT
# fish completion of kvblk(8). Rule: verbs, options and arguments are those that the command's help tells, so none is said here.

# __kvblk_value PREFIX KIND: words of this kind, as the help calls it
function __kvblk_value
    switch $argv[2]
        case FORMAT
            printf '%s\n' $argv[1]{json,text}
        case 'POOL*' 'NAME*'
            for node in /dev/kvblk/*/
                echo $argv[1](basename $node)
            end
        case 'MEMBER*'
            kvblk member list 2>/dev/null | awk 'NR > 1 { print $2 }'
        case 'TENANT*'
            kvblk tenant list -H 2>/dev/null | awk '{ print $2 }'
        case '*FILE*' '*DEVICE*'
            __fish_complete_path (string replace -- "$argv[1]" '' (commandline -ct)) | string replace -r '^' -- "$argv[1]"
    end
end

# what may stand at the cursor, a line each, and behind a tab what it is
function __kvblk_complete
    set -l verbs '^  ([a-z][a-z-]*)  +(.*)'
    set -l typed
    set -l option
    set -l nth 1
    set -l help (kvblk --help 2>/dev/null)
    for word in (commandline -opc)[2..]
        if set -q option[1]
            set -e option
        else if string match -q -- '-*' $word
            test $word != -o; or set word --output
            set option (string replace -rf -- "^ {2,6}(-., )?$word=([^ ]*).*" '$2' $help)
        else if string match -rq $verbs $help
            string match -rq "^  $word  " $help; or return
            set -a typed $word
            set help (kvblk $typed --help 2>/dev/null)
        else
            set nth (math $nth + 1)
        end
    end

    set -l word (commandline -ct)
    if set -q option[1]
        __kvblk_value '' $option[1]
    else if string match -q -- '--*=*' $word
        set word (string split -m 1 = -- $word)[1]
        __kvblk_value $word= (string replace -rf -- "^ {2,6}(-., )?$word\[?=([^ ]*).*" '$2' $help)
    else if string match -q -- '-*' $word
        string replace -rf -- '^ {2,6}(-., )?(--[a-z-]+)(\[?=[^ ]*)? *(.*)' '$2\t$4' $help
    else if string match -rq $verbs $help
        string replace -rf -- $verbs '$1\t$2' $help
    else
        set -l arguments (string split ' ' (string replace -rf -- '^Usage: kvblk [a-z ]*\[OPTION\.\.\.\] ?' '' $help))
        # the last one may come again
        set -q arguments[$nth]; or set nth (string match -q '*...*' -- $arguments[-1]; and count $arguments; or echo $nth)
        __kvblk_value '' (string trim -c '[].' -- $arguments[$nth])
    end
end

complete -c kvblk -f -a '(__kvblk_complete)'
