# Prints what bash offers for the command line $1.
source /usr/share/bash-completion/bash_completion
source <(bailiwick completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_KEY=9
COMP_TYPE=37 # of menu completion: without descriptions
read -ra COMP_WORDS <<< "$1"
[[ $1 != *" " ]] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
__start_bailiwick 2> /dev/null # bash has no compopt outside of a completion
printf '%s\n' "${COMPREPLY[@]}"
