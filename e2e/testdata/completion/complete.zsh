# Prints what zsh offers for the command line $1, typed into a shell on a terminal.
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1= PS2=; autoload -Uz compinit; compinit -D -u; source <(bailiwick completion zsh)
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
  local -a hits
  builtin compadd -A hits "$@"
  for hit in $hits; do print -r -- "@@$hit@@"; done
}
finish() { print -r -- "@@@" }; zle -N finish; bindkey "^X" finish; bindkey "^I" complete-word; print -r -- "rea""dy"'
seen() { local line; out=; while zpty -r z line; do out+=$line; [[ $out == *$1* ]] && return; done; exit 1 }
seen ready
zpty -w -n z "$1"$'\t'$'\x18'
seen @@@
zpty -d z
for word in ${(f)out}; do [[ $word == *@@[^@]##@@* ]] && { word=${word%@@*}; print -r -- ${word##*@@} } ; done
exit 0
