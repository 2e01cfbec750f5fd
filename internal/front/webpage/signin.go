package webpage

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// signInView is the page where people sign in.
type signInView struct {
	Next           string
	OIDC, Passkeys bool
	Problem, Hint  string
}

func (s *site) getLogin(w http.ResponseWriter, r *http.Request) {
	s.signIn(w, r, localPath(r.URL.Query().Get("next")), nil)
}

// signIn shows how to sign in, and why it is needed or has failed.
func (s *site) signIn(w http.ResponseWriter, r *http.Request, next string, why error) {
	v, status := signInView{Next: next}, http.StatusOK
	methods, err := s.team.service.Login().Methods(r.Context())
	if err != nil {
		why = err
	}
	v.OIDC, v.Passkeys = methods.OIDC != nil, methods.Passkeys
	if why != nil {
		status = http.StatusInternalServerError
		v.Problem = why.Error()
		if e, ok := errors.AsType[*api.Error](why); ok {
			v.Problem, v.Hint, status = e.Message, e.Hint, api.Table()[e.Code].HTTP
		}
	}
	s.render(w, r, status, "signin", layoutData{Title: "Sign in", Data: v})
}

// admit gives a browser the session that the service opened.
func admit(w http.ResponseWriter, opened api.PersonSession) {
	http.SetCookie(w, teamCookie(personCookie, opened.Session, opened.ExpiresAt))
}

// beginPasskey asks the service for a challenge to the passkeys of this page.
func (s *site) beginPasskey(w http.ResponseWriter, r *http.Request) {
	c, err := s.team.service.Login().PasskeyBegin(r.Context(), s.team.Origin)
	shown := struct { // no names: the reader is not signed in
		ID          string   `json:"id"`
		Challenge   []byte   `json:"challenge"`
		Credentials [][]byte `json:"credentials"`
	}{ID: c.ID, Challenge: c.Challenge}
	for _, k := range c.Passkeys {
		shown.Credentials = append(shown.Credentials, k.Credential)
	}
	s.answerScript(w, r, shown, err)
}

// finishPasskey hands an assertion to the service, which alone verifies it.
func (s *site) finishPasskey(w http.ResponseWriter, r *http.Request) {
	var req api.PasskeyLogin
	err := readScript(r, &req)
	var opened api.PersonSession
	if err == nil {
		opened, err = s.team.login(r).PasskeyFinish(r.Context(), req)
	}
	if err == nil {
		admit(w, opened)
	}
	s.answerScript(w, r, struct{}{}, err)
}

// postEnrol says what a link is for, or hands the passkey that was created to the service.
func (s *site) postEnrol(w http.ResponseWriter, r *http.Request) {
	var req api.EnrolRequest
	err := readScript(r, &req)
	var answer api.EnrolAnswer
	if err == nil {
		answer, err = s.team.login(r).Enrol(r.Context(), req)
	}
	s.answerScript(w, r, answer, err)
}

// readScript reads what a script of the page sent, strictly.
func readScript(r *http.Request, into any) error {
	if r.Header.Get("Content-Type") != "application/json" {
		return api.Errorf(api.CodeInvalid, "want application/json")
	}
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = canon.Decode(b, into)
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "request: %w", err)
	}
	return nil
}

// answerScript answers a script of the page: with v, or with what is wrong and what to do.
func (s *site) answerScript(w http.ResponseWriter, r *http.Request, v any, err error) {
	status := http.StatusOK
	if err != nil {
		if r.Context().Err() != nil {
			return // the browser has left
		}
		e, ok := errors.AsType[*api.Error](err)
		if !ok {
			e = &api.Error{Code: api.CodeInternal, Message: err.Error()}
		}
		status = api.Table()[e.Code].HTTP
		v = struct {
			Problem string `json:"problem"`
			Hint    string `json:"hint,omitempty"`
		}{Visible(e.Message), Visible(e.Hint)}
	}
	b, err := json.Marshal(v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the browser has left
}
