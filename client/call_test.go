package client

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// recorder answers every call and records which it was, by the patterns of the
// table.
type recorder struct {
	mux *http.ServeMux

	mu    sync.Mutex
	calls map[api.Call]bool // guarded by mu
	stray []string          // requests outside the table; guarded by mu
}

func newRecorder() *recorder {
	r := &recorder{mux: http.NewServeMux(), calls: map[api.Call]bool{}}
	for _, c := range api.Calls() {
		r.mux.HandleFunc(string(c), func(w http.ResponseWriter, _ *http.Request) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls[c] = true
			_, _ = io.WriteString(w, `{"events":[{}],"done":true}`+"\n")
		})
	}
	r.mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stray = append(r.stray, q.Method+" "+q.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	})
	return r
}

func (r *recorder) take(t *testing.T) []api.Call {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stray) > 0 {
		t.Errorf("requests outside the table: %v", r.stray)
	}
	made := slices.Sorted(maps.Keys(r.calls))
	r.calls, r.stray = map[api.Call]bool{}, nil
	return made
}

// invokeAll calls every method of face that takes a context, with each variant
// of the arguments that choose between calls.
func invokeAll(ctx context.Context, face any) {
	v := reflect.ValueOf(face)
	for _, m := range v.Methods() {
		if m.Type().NumIn() == 0 || m.Type().In(0) != reflect.TypeFor[context.Context]() {
			continue
		}
		for variant := range 3 {
			args := []reflect.Value{reflect.ValueOf(ctx)}
			for j := 1; j < m.Type().NumIn(); j++ {
				args = append(args, argument(m.Type().In(j), variant))
			}
			m.Call(args)
		}
	}
}

func argument(t reflect.Type, variant int) reflect.Value {
	switch {
	case t == reflect.TypeFor[io.Writer]():
		return reflect.ValueOf(io.Discard)
	case t == reflect.TypeFor[api.Kind]():
		return reflect.ValueOf([]api.Kind{api.KindCapability, api.KindSubagent, api.KindEnv}[variant])
	case t.Kind() == reflect.Bool:
		return reflect.ValueOf(variant == 0)
	case t.Kind() == reflect.String:
		return reflect.ValueOf("x").Convert(t)
	case t.Kind() == reflect.Func:
		full := reflect.ValueOf(errors.New("the disk is full")) // ends the stream
		return reflect.MakeFunc(t, func([]reflect.Value) []reflect.Value { return []reflect.Value{full.Convert(reflect.TypeFor[error]())} })
	default:
		return reflect.Zero(t)
	}
}

// Runtime makes every runtime call and no other, Operator every operator call and no
// other, Login every login call and no other.
//
// proves R-B4
func TestEachFaceMakesExactlyTheCallsOfItsClass(t *testing.T) {
	r := newRecorder()
	_, conn := newStage(t, r.mux.ServeHTTP)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for class, face := range map[api.CallClass]any{api.ClassRuntime: conn.Runtime(), api.ClassOperator: conn.Operator(), api.ClassSession: conn, api.ClassLogin: conn.Login(), api.ClassSessions: conn.Sessions()} {
		if class != api.ClassSession {
			invokeAll(ctx, face)
		} else if _, err := conn.Exchange(ctx, "x"); err != nil {
			t.Error(err)
		}
		var want []api.Call
		for _, c := range api.Calls() {
			if c.Class() == class {
				want = append(want, c)
			}
		}
		if made := r.take(t); !slices.Equal(made, want) {
			t.Errorf("%s makes %v\nwant %v", class, made, want)
		}
	}
	// The control: a call of the other class is recorded.
	if err := conn.do(ctx, on(api.CallStop)); err != nil || !slices.Equal(r.take(t), []api.Call{api.CallStop}) {
		t.Error("positive control: a call is not recorded")
	}
}
