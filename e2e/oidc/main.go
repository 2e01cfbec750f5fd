// Command oidc is an identity provider for tests: the OpenID Provider of
// github.com/zitadel/oidc over TLS, with the code flow, PKCE, the device flow and refresh
// tokens, in a process of its own. It is a module of its own, so nothing of it is a
// dependency of the programs.
//
//	oidc ADDRESS CERTIFICATE KEY USERS [REDIRECT...]
//
// ADDRESS is HOST:PORT.
// USERS is a JSON file, {"NAME": {"password": "…", "groups": ["…"]}}, read at each login.
// Client bailiwick is public. POST /device confirms a device: user_code, username, password.
// POST /rotate replaces the signing key.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

type user struct {
	Password string   `json:"password"`
	Groups   []string `json:"groups"`
}

// users reads the users' file.
type users struct{ path string }

func (u users) get(name string) *user {
	all := map[string]*user{}
	b, err := os.ReadFile(u.path)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		slog.Error("users", slog.Any("err", err))
	}
	return all[name]
}

func (u users) GetUserByID(name string) *storage.User {
	found := u.get(name)
	if found == nil {
		return nil
	}
	return &storage.User{ID: name, Username: name, Password: found.Password}
}

func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }

func (users) ExampleClientID() string { return "" }

// signing is a key, in the forms that the library asks for.
type signing struct {
	id  string
	key *rsa.PrivateKey
}

func (s *signing) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (s *signing) Algorithm() jose.SignatureAlgorithm          { return jose.RS256 }
func (s *signing) Key() any                                    { return s.key }
func (s *signing) ID() string                                  { return s.id }
func (s *signing) Use() string                                 { return "sig" }

type public struct{ *signing }

func (p public) Key() any { return p.key.Public() }

// store is the library's example storage with groups and keys that rotate.
type store struct {
	*storage.Storage
	users users

	mu   sync.Mutex
	keys []*signing // guarded by mu
}

func (s *store) rotate() error {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = []*signing{{id: "key" + strconv.FormatInt(time.Now().UnixNano(), 10), key: k}}
	return nil
}

func (s *store) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[0], nil
}

func (s *store) KeySet(context.Context) (list []op.Key, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		list = append(list, public{k})
	}
	return list, nil
}

func (s *store) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string) error {
	if err := s.Storage.SetUserinfoFromRequest(ctx, info, token, scopes); err != nil {
		return err
	}
	found := s.users.get(token.GetSubject())
	if found == nil {
		return errors.New("no such user")
	}
	if slices.Contains(scopes, "groups") {
		info.AppendClaims("groups", found.Groups)
	}
	return nil
}

func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{c}, nil
}

// TokenRequestByRefreshToken completes the request of a token of the device flow, whose
// client the example storage forgets.
func (s *store) TokenRequestByRefreshToken(ctx context.Context, token string) (op.RefreshTokenRequest, error) {
	r, err := s.Storage.TokenRequestByRefreshToken(ctx, token)
	if err != nil {
		return nil, err
	}
	if known, ok := r.(*storage.RefreshTokenRequest); ok && known.ApplicationID == "" {
		known.ApplicationID = "bailiwick"
	}
	return r, nil
}

// client may use the device flow and have groups in its ID tokens.
type client struct{ op.Client }

func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeDeviceCode, oidc.GrantTypeRefreshToken}
}

func (client) AuthMethod() oidc.AuthMethod          { return oidc.AuthMethodNone }
func (client) IDTokenUserinfoClaimsAssertion() bool { return true }
func (client) IsScopeAllowed(string) bool           { return true }
func (client) RestrictAdditionalIdTokenScopes() func(scopes []string) []string {
	return func(s []string) []string { return s }
}

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: oidc ADDRESS CERTIFICATE KEY USERS [REDIRECT...]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5:]); err != nil {
		fmt.Fprintln(os.Stderr, "oidc:", err)
		os.Exit(1)
	}
}

func run(address, certificate, key, path string, redirects []string) error {
	storage.RegisterClients(storage.NativeClient("bailiwick", redirects...))
	s := &store{Storage: storage.NewStorage(users{path}), users: users{path}}
	if err := s.rotate(); err != nil {
		return err
	}
	issuer := "https://" + strings.TrimSuffix(address, ":443")
	provider, err := op.NewProvider(&op.Config{
		CryptoKey: sha256.Sum256([]byte(rand.Text())), CodeMethodS256: true, GrantTypeRefreshToken: true,
		DeviceAuthorization: op.DeviceAuthorizationConfig{Lifetime: time.Minute, PollInterval: time.Second, UserFormPath: "/device", UserCode: op.UserCodeBase20},
	}, s, op.StaticIssuer(issuer))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/username", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<form method="post"><input type="hidden" name="id" value="%s"><input name="username"><input name="password" type="password"><button>Log in</button></form>`,
			html.EscapeString(r.FormValue("authRequestID")))
	})
	mux.HandleFunc("POST /login/username", func(w http.ResponseWriter, r *http.Request) {
		id := r.PostFormValue("id")
		if err := s.CheckUsernamePassword(r.PostFormValue("username"), r.PostFormValue("password"), id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, op.AuthCallbackURL(provider)(op.ContextWithIssuer(r.Context(), issuer), id), http.StatusFound)
	})
	mux.HandleFunc("POST /device", func(w http.ResponseWriter, r *http.Request) {
		err := s.CheckUsernamePasswordSimple(r.PostFormValue("username"), r.PostFormValue("password"))
		if err == nil {
			err = s.CompleteDeviceAuthorization(r.Context(), r.PostFormValue("user_code"), r.PostFormValue("username"))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	})
	mux.HandleFunc("POST /rotate", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.rotate(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.Handle("/", provider)
	return http.ListenAndServeTLS(address, certificate, key, mux)
}
