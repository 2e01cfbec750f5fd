package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Vault reads from the KV version 2 engine of HashiCorp Vault or OpenBao, whose API
// for that is the same: https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2
type Vault struct {
	Address   string       // https://HOST[:PORT]
	Client    *http.Client // bounds time and size
	Namespace string       // may be empty
	// Token returns the token, or is nil with AppRole.
	Token func() ([]byte, error)
	// AppRole logs in for each reading.
	AppRole *AppRole
}

// AppRole is the login of a program.
type AppRole struct {
	Mount    string // of the auth method; "approle" when empty
	RoleID   string
	SecretID func() ([]byte, error)
}

// read returns the member key of the newest version of the secret at a path, whose
// first segment is the engine's mount.
func (v *Vault) read(ctx context.Context, path, key string) (string, error) {
	token, err := v.login(ctx)
	if err != nil {
		return "", err
	}
	mount, rest, ok := strings.Cut(path, "/")
	if !ok {
		return "", errors.New("want vault://MOUNT/PATH#KEY")
	}
	var answer struct {
		Data struct {
			Data map[string]json.RawMessage `json:"data"`
		} `json:"data"`
	}
	if err := v.call(ctx, http.MethodGet, mount+"/data/"+rest, token, nil, &answer); err != nil {
		return "", err
	}
	raw, ok := answer.Data.Data[key]
	if !ok {
		return "", errors.New("the secret has no such key, or its newest version is deleted")
	}
	var value string
	if json.Unmarshal(raw, &value) != nil {
		return "", errors.New("the value is not text")
	}
	return value, nil
}

// login returns a token.
func (v *Vault) login(ctx context.Context) (string, error) {
	if v.AppRole == nil {
		b, err := v.Token()
		return strings.TrimSpace(string(b)), err
	}
	id, err := v.AppRole.SecretID()
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]string{"role_id": v.AppRole.RoleID, "secret_id": strings.TrimSpace(string(id))})
	if err != nil {
		return "", err
	}
	mount := v.AppRole.Mount
	if mount == "" {
		mount = "approle"
	}
	var answer struct {
		Auth struct {
			Token string `json:"client_token"`
		} `json:"auth"`
	}
	if err := v.call(ctx, http.MethodPost, "auth/"+mount+"/login", "", body, &answer); err != nil {
		return "", fmt.Errorf("login: %w", err)
	}
	if answer.Auth.Token == "" {
		return "", errors.New("login: the vault gave no token")
	}
	return answer.Auth.Token, nil
}

// call makes one request. Its errors have nothing of the answer, which may contain a
// value, but the status.
func (v *Vault) call(ctx context.Context, method, path, token string, body []byte, into any) error {
	at, err := url.JoinPath(v.Address, "v1", path)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("X-Vault-Request", "true")
	if token != "" {
		r.Header.Set("X-Vault-Token", token)
	}
	if v.Namespace != "" {
		r.Header.Set("X-Vault-Namespace", v.Namespace)
	}
	answer, err := v.Client.Do(r)
	if err != nil {
		return fmt.Errorf("the vault does not answer: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return fmt.Errorf("the vault does not answer: %w", err)
	case answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("the vault has nothing at %s (status 404): check the path, and that the engine is KV version 2", path)
	case answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("the vault denies %s (status 403): check the token and its policy", path)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("the vault answers %s with status %d", path, answer.StatusCode)
	}
	if json.Unmarshal(text, into) != nil {
		return errors.New("the vault's answer is not of the KV version 2 engine")
	}
	return nil
}
