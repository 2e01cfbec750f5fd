# The team of the virtual machine. For steps: . "$VM/vm/team.sh"
#
#   as NAME COMMAND...   run a command as a person
#   set_up               make accounts and keys, set the machine up, publish a catalog
as() { local who=$1; shift; runuser -u "$who" -- env -C "/home/$who" HOME="/home/$who" "$@"; }

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
