package webpage

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// steering is the forms that steer runs. Each makes the call of the CLI's
// verb of the same name, and nothing signs or decides. Without Steer they do not exist.
type steering struct{ source }

func (s steering) routes() []route {
	return []route{
		{pattern: "POST /runs/{id}/cancel", post: s.cancelRun},
		{pattern: "POST /runs/{id}/pause", post: s.pauseRun},
		{pattern: "POST /runs/{id}/resume", post: s.resumeRun},
		{pattern: "POST /runs/{id}/retry", post: s.retryRun},
		{pattern: "POST /runs/{id}/answer", post: s.answerRun},
		{pattern: "POST /dispatches/{id}/cancel", post: s.cancelDispatch},
		{pattern: "POST /dispatches/{id}/answer", post: s.answerDispatch},
	}
}

// form reads the fields of a form and keeps the first error.
type form struct {
	values url.Values
	err    error
}

func formOf(r *http.Request) *form {
	f := &form{}
	if err := r.ParseForm(); err != nil {
		f.keep("form", err)
	}
	f.values = r.PostForm
	return f
}

func (f *form) keep(name string, err error) {
	if err != nil && f.err == nil {
		f.err = api.Errorf(api.CodeInvalid, "%s: %w", name, err)
	}
}

// number reads a field that may be absent.
func (f *form) number(name string) (n int) {
	if text := f.values.Get(name); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 {
			f.keep(name, errors.New("want a number"))
		}
	}
	return n
}

func (f *form) run(r *http.Request) api.RunID {
	id, err := api.ParseRunID(r.PathValue("id"))
	f.keep("run", err)
	return id
}

func (f *form) dispatch(r *http.Request) api.DispatchID {
	id, err := api.ParseDispatchID(r.PathValue("id"))
	f.keep("dispatch", err)
	return id
}

// Each handler returns the path of the page to show next.

func (s steering) cancelRun(r *http.Request) (string, error) {
	f := formOf(r)
	id, req := f.run(r), api.RunCancel{Task: filter(f.values, "task", api.ParseGrownTaskID, f.keep), Reason: f.values.Get("reason")}
	if f.err != nil {
		return "", f.err
	}
	_, err := s.operator(r.Context()).CancelRun(r.Context(), id, req)
	return "/runs/" + string(id), err
}

func (s steering) pauseRun(r *http.Request) (string, error) {
	f := formOf(r)
	id := f.run(r)
	if f.err != nil {
		return "", f.err
	}
	_, err := s.operator(r.Context()).PauseRun(r.Context(), id)
	return "/runs/" + string(id), err
}

func (s steering) resumeRun(r *http.Request) (string, error) {
	f := formOf(r)
	id := f.run(r)
	if f.err != nil {
		return "", f.err
	}
	_, err := s.operator(r.Context()).ResumeRun(r.Context(), id)
	return "/runs/" + string(id), err
}

func (s steering) retryRun(r *http.Request) (string, error) {
	f := formOf(r)
	id, key := f.run(r), f.values.Get("key")
	if key == "" {
		f.keep("key", errors.New("want the key of the form, with which a repeated request is one retry"))
	}
	if f.err != nil {
		return "", f.err
	}
	run, err := s.operator(r.Context()).RetryRun(r.Context(), id, api.RunRetry{Key: key})
	if err != nil {
		return "", err
	}
	_ = s.operator(r.Context()).SeeRun(r.Context(), id) // else the settled run waits on for a person
	return "/runs/" + string(run.RunID), nil
}

func (s steering) answerRun(r *http.Request) (string, error) {
	f := formOf(r)
	id, req := f.run(r), api.RunAnswer{
		Task: filter(f.values, "task", api.ParseGrownTaskID, f.keep), DispatchID: filter(f.values, "dispatch", api.ParseDispatchID, f.keep),
		Text: f.values.Get("text"), Option: f.number("option"), Attempt: f.attempt(),
	}
	if f.err != nil {
		return "", f.err
	}
	_, err := s.operator(r.Context()).AnswerRun(r.Context(), id, req)
	return "/runs/" + string(id), err
}

// attempt reads the attempt whose question is answered. A page may be old, so an answer
// always names it.
func (f *form) attempt() int {
	n := f.number("attempt")
	if n == 0 {
		f.keep("attempt", errors.New("want the attempt that asks"))
	}
	return n
}

func (s steering) cancelDispatch(r *http.Request) (string, error) {
	f := formOf(r)
	id, reason := f.dispatch(r), f.values.Get("reason")
	if f.err != nil {
		return "", f.err
	}
	_, err := s.runtime(r.Context()).Cancel(r.Context(), id, reason)
	return "/dispatches/" + string(id), err
}

func (s steering) answerDispatch(r *http.Request) (string, error) {
	f := formOf(r)
	id, req := f.dispatch(r), api.AnswerRequest{Text: f.values.Get("text"), Option: f.number("option"), Attempt: f.attempt()}
	if f.err != nil {
		return "", f.err
	}
	_, err := s.runtime(r.Context()).Answer(r.Context(), id, req)
	return "/dispatches/" + string(id), err
}
