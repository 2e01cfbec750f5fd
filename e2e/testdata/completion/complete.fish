# Prints what fish offers for the command line $argv[1].
bailiwick completion fish | source
complete -C "$argv[1]" | string replace -r '\t.*' ''
exit 0
