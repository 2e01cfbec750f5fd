package operator

import (
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// secretValue is the value in force of a secret.
type secretValue struct {
	content api.Digest // of its encrypted form
	at      time.Time  // when it was set
}

func (s *state) removeSecret(rec api.OperatorRecord) error {
	if _, ok := s.secrets[rec.Secret]; !ok {
		return api.Errorf(api.CodeInvalid, "secret %q is not set", rec.Secret).WithHint("see: bailiwick secret list")
	}
	delete(s.secrets, rec.Secret)
	return nil
}

// putSecret stores the value of a record before the record is durable. It counts only
// from then on.
func putSecret(to Secrets, rec api.OperatorRecord, content []byte) error {
	switch {
	case rec.Verb != api.VerbSecretSet && len(content) == 0:
		return nil
	case rec.Verb != api.VerbSecretSet:
		return api.Errorf(api.CodeInvalid, "operator record %q: takes no content", string(rec.Verb))
	case to == nil:
		return api.Errorf(api.CodeUnavailable, "this service keeps no secrets")
	case api.DigestOf(content) != rec.Content:
		return api.Errorf(api.CodeIntegrity, "secret %q: the content is not the signed one", rec.Secret).WithHint("run the command again")
	}
	if err := to.Put(content); err != nil {
		return api.Errorf(api.CodeInvalid, "secret %q: %w", rec.Secret, err).WithHint("run the command again")
	}
	return nil
}

// sweepSecrets removes the values that no record in force names.
func sweepSecrets(to Secrets, s *state) error {
	if to == nil {
		return nil
	}
	inForce := map[api.Digest]bool{}
	for _, v := range s.secrets {
		inForce[v.content] = true
	}
	return to.Keep(func(d api.Digest) bool { return inForce[d] })
}
