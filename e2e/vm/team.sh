# The team of the virtual machine. For steps: . "$VM/vm/team.sh"
#
#   as NAME COMMAND...   run a command as a person
#   decide FIRST SECOND VERB...   FIRST submits a decision, and both sign it
#   set_up               make accounts and keys, set the machine up, publish a catalog
as() { local who=$1; shift; runuser -u "$who" -- env -C "/home/$who" HOME="/home/$who" "$@"; }

decide() {
  local first=$1 second=$2 waiting id=''
  shift 2
  as "$first" bailiwick "$@" --passkey > /var/tmp/decision 2>&1 <&0 &
  waiting=$!
  until [ "$id" ]; do
    kill -0 $waiting || { cat /var/tmp/decision; return 1; }
    sleep 0.2
    id=$(as "$second" bailiwick decision list -o json | jq -r '[.[] | select(.state == "open")][0].id // empty')
  done
  as "$second" bailiwick decision sign "$id" && as "$first" bailiwick decision sign "$id" || return
  wait $waiting || { cat /var/tmp/decision; return 1; }
}

set_up() {
  local name
  for name in alice bob carol; do
    userdel --remove "$name" 2>/dev/null || :
    useradd --create-home --shell /bin/bash "$name"
  done
  for name in alice bob; do
    as "$name" bailiwick-deploy key create --insecure-unencrypted --name "$name"
    as "$name" bailiwick-deploy operator keygen --insecure-unencrypted --name "$name"
  done
  cat > /root/answers.yaml <<YAML
version: 1
deploy: {threshold: 2, keys: [/home/alice/.config/bailiwick/deploy.key.pub, /home/bob/.config/bailiwick/deploy.key.pub]}
operators:
  threshold: 2
  keys:
    - {file: /home/alice/.config/bailiwick/operator.key.pub, principal: "local:alice"}
    - {file: /home/bob/.config/bailiwick/operator.key.pub, principal: "local:bob"}
members: [alice, bob]
YAML
  bailiwick-deploy setup --from /root/answers.yaml --yes
  if bailiwick-deploy setup --from /root/answers.yaml --yes; then echo "it was set up twice"; exit 1; fi
  systemctl enable --now bailiwick.socket bailiwick-launch.socket bailiwick.service
  systemctl is-active bailiwick.service
  rm -rf /srv/garden && install -d -o alice -g alice /srv/garden # the service reads no home
  as alice sh -c 'cd /srv/garden && git init -q -b main && git config user.name a && git config user.email a@localhost && echo "# Garden" > README.md && git add -A && git commit -qm first'
  as alice sh -c 'cd /srv/garden && bailiwick-deploy init --insecure-unencrypted && bailiwick-deploy catalog apply --file bailiwick.yaml --reason first'
  as bob bailiwick-deploy catalog sign
  as alice bailiwick-deploy catalog verify
}
