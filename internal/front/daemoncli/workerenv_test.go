package daemoncli

import (
	"slices"
	"testing"
)

// A worker gets directories and certificates from the service's environment, and nothing
// else: no secret, no setting of git, ssh or the loader, and no proxy.
func TestAWorkerGetsFewVariables(t *testing.T) {
	kept := []string{
		"HOME=/h", "PATH=/bin", "XDG_DATA_HOME=/d", "XDG_STATE_HOME=/s", "XDG_CONFIG_HOME=/c", "TMPDIR=/t",
		"SSL_CERT_FILE=/f", "SSL_CERT_DIR=/e",
	}
	env := append(slices.Clone(kept),
		"ANTHROPIC_API_KEY=x", "BAILIWICK_TOKEN=x", "GIT_CONFIG_COUNT=1", "GIT_SSH_COMMAND=x", "HTTPS_PROXY=x", "LD_PRELOAD=x",
		"SSH_AUTH_SOCK=x", "XDG_RUNTIME_DIR=/r", "GODEBUG=x", "HOMEDIR=/x", "XPATH=x", "path=x", "HOME", "=HOME", "",
	)
	before := slices.Clone(env)
	want := append(slices.Clone(kept), "HOME")
	if got := workerEnv(env); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !slices.Equal(env, before) {
		t.Errorf("the environment of the service became %q", env)
	}
}
