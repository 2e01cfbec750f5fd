package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

func entryAt() time.Time { return time.Date(2026, 11, 21, 14, 22, 11, 123456789, time.UTC) }

// hostile draws texts that have broken logs before.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{
			"", "\x00", "\n2026 allowed [#1]", "\r\x1b[2K\x1b[1A", "\u2028\u2029\u0085", "\xed\xa0\x80", "\xff\xfe", "\u202egnp.exe",
			`","decision":"allow","x":"`, "</script>&<>", "a: allowed by policy \"x\" [#9]", "\U0001F600", "\ufffd", "\x7f", strings.Repeat("[", 5000),
			strings.Repeat("\x00", 5000), strings.Repeat("\U0001F600", 2000), strings.Repeat("a", 9000), "...[cut: 5 bytes, sha256:00]",
		}),
	)
}

// fill puts hostile content into every field of detail.
func fill(t *rapid.T, detail Detail) Detail {
	v := reflect.New(reflect.TypeOf(detail)).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Interface().(type) {
		case string:
			f.SetString(hostile().Draw(t, "text"))
		case []string:
			if list := rapid.SliceOfN(hostile(), 0, 40).Draw(t, "list"); len(list) > 0 {
				f.Set(reflect.ValueOf(list))
			}
		case int64:
			f.SetInt(rapid.Int64().Draw(t, "number"))
		case *ServiceConfig:
			if rapid.Bool().Draw(t, "configured") {
				c := &ServiceConfig{File: hostile().Draw(t, "file"), Digest: hostile().Draw(t, "digest")}
				if list := rapid.SliceOfN(hostile(), 0, 100).Draw(t, "settings"); len(list) > 0 {
					c.Settings = list
				}
				f.Set(reflect.ValueOf(c))
			}
		case []BudgetClaim:
			for range rapid.IntRange(0, 20).Draw(t, "budgets") {
				f.Set(reflect.Append(f, reflect.ValueOf(BudgetClaim{hostileSpend(t), hostile().Draw(t, "budget"), hostileSpend(t), hostile().Draw(t, "period"), hostileSpend(t)})))
			}
		case []BudgetSettlement:
			for range rapid.IntRange(0, 20).Draw(t, "budgets") {
				f.Set(reflect.Append(f, reflect.ValueOf(BudgetSettlement{hostile().Draw(t, "budget"), hostile().Draw(t, "period"), hostileSpend(t)})))
			}
		case bool:
			f.SetBool(rapid.Bool().Draw(t, "flag"))
		default:
			t.Fatalf("%T has a field of a kind that bounds do not know: %s", detail, v.Type().Field(i).Name)
		}
	}
	return v.Interface().(Detail)
}

func hostileSpend(t *rapid.T) api.Spend {
	n := rapid.Int64()
	return api.Spend{Cost: api.Cost(n.Draw(t, "cost")), Currency: hostile().Draw(t, "currency"), Dispatches: n.Draw(t, "dispatches"), Millis: n.Draw(t, "millis"), Tokens: n.Draw(t, "tokens")}
}

func anyEntry(t *rapid.T) Entry {
	kind := rapid.SampledFrom(Kinds()).Draw(t, "kind")
	row, ok := kind.row()
	if !ok {
		t.Fatalf("kind %q has no row", kind)
	}
	text := func(name string) string { return hostile().Draw(t, name) }
	e := Entry{
		Kind: kind, At: entryAt(), Decision: row.decision, Detail: fill(t, row.detail),
		Principal: api.Principal(text("principal")), Action: text("action"), Resource: text("resource"),
		Policies: rapid.SliceOfN(hostile(), 0, 40).Draw(t, "policies"),
		Run:      text("run"), Task: text("task"), Dispatch: api.DispatchID(text("dispatch")), Attempt: rapid.Int().Draw(t, "attempt"),
		Role: api.Name(text("role")), Tool: text("tool"), Token: api.TokenID(text("token")),
	}
	if rapid.Bool().Draw(t, "tiered") {
		tier := api.Tier(rapid.IntRange(0, 3).Draw(t, "tier"))
		e.Tier = &tier
	}
	if e.complete() != nil {
		e.Run, e.Task, e.Dispatch, e.Attempt, e.Tool = "r1", "a", "d-01", 1, "see"
	}
	if n := rapid.IntRange(0, maxRefs).Draw(t, "refs"); n > 0 {
		e.Refs = map[string]api.Digest{}
		for i := range n {
			e.Refs["ref"+strings.Repeat("x", i)] = api.DigestOf([]byte{byte(i)})
		}
	}
	return e
}

func printable(b []byte) bool {
	return bytes.IndexFunc(b, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0
}

// proves R-A4
func TestEncodeAcceptsAnyContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEntry(t)
		leaf, err := e.Encode()
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		if len(leaf) > MaxEntry || !printable(leaf) {
			t.Fatalf("%d bytes, printable %v", len(leaf), printable(leaf))
		}
		if c, err := canon.Canonicalize(leaf); err != nil || !bytes.Equal(c, leaf) {
			t.Fatalf("not canonical: %v\n%.300s\n%.300s", err, leaf, c)
		}
		back, err := DecodeEntry(leaf)
		if err != nil {
			t.Fatalf("what was encoded is refused: %v\n%.300s", err, leaf)
		}
		again, err := back.Encode()
		if err != nil || !bytes.Equal(again, leaf) {
			t.Fatalf("a second encoding differs: %v\n%.500s\n%.500s", err, leaf, again)
		}
		for _, line := range []string{e.Line(7), back.Line(7)} {
			if hides(line) || !strings.HasPrefix(line, "2026-11-21T14:22:11Z ") || !strings.HasSuffix(line, " [#7]") || strings.Count(line, "[#7]") > 1+strings.Count(line, `"`) {
				t.Fatalf("line %q", line)
			}
		}
	})
}

// An entry says what it is about: none is written or read without a member that its kind
// requires. The control: the same entry with all members.
//
// proves R-A4
func TestAnEntryHasTheMembersOfItsKind(t *testing.T) {
	for _, k := range Kinds() {
		whole := Entry{Kind: k, At: entryAt(), Decision: k.Decided(), Detail: k.Detail(), Run: "r1", Task: "a", Dispatch: "d-01", Attempt: 1, Tool: "see"}
		leaf, err := whole.Encode()
		if err != nil {
			t.Errorf("control: %v", err)
			continue
		}
		for name, drop := range map[string]func(e *Entry){
			`"run"`: func(e *Entry) { e.Run = "" }, `"task"`: func(e *Entry) { e.Task = "" }, `"dispatch"`: func(e *Entry) { e.Dispatch = "" },
			`"attempt"`: func(e *Entry) { e.Attempt = 0 }, `"tool"`: func(e *Entry) { e.Tool = "" },
		} {
			e, lost := whole, regexp.MustCompile(`,`+name+`:("[^"]*"|[0-9]+)`).ReplaceAll(leaf, nil)
			drop(&e)
			again, err := e.Encode()
			_, read := DecodeEntry(lost)
			if (err == nil) != (read == nil) || err == nil && !bytes.Equal(again, lost) {
				t.Errorf("%s without %s: written %v, read %v", k, name, err, read)
			}
			if k == KindDispatchAttested && name == `"dispatch"` && (err == nil || read == nil) {
				t.Errorf("%s without %s: accepted", k, name)
			}
		}
	}
}

// proves R-A4
func TestEncodeMarksWhatItCuts(t *testing.T) {
	long := strings.Repeat("x", 10<<20)
	many := make([]string, 1000)
	for i := range many {
		many[i] = "because"
	}
	e := Entry{Kind: KindAccessDenied, At: entryAt(), Decision: Deny, Resource: "a\xffb", Action: "\ufffd", Detail: Access{Operation: long, Reasons: many}}
	leaf, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeEntry(leaf)
	if err != nil {
		t.Fatal(err)
	}
	d := back.Detail.(Access)
	if want := "...[cut: 10485760 bytes, " + string(api.DigestOf([]byte(long))) + "]"; !strings.HasSuffix(d.Operation, want) || !strings.HasPrefix(d.Operation, "xxx") {
		t.Errorf("a long text became %q", d.Operation)
	}
	if want := "a\ufffdb...[not UTF-8: 3 bytes, " + string(api.DigestOf([]byte("a\xffb"))) + "]"; back.Resource != want {
		t.Errorf("a text that is not UTF-8 became %q, want %q", back.Resource, want)
	}
	if back.Action != "\ufffd" {
		t.Errorf("a true U+FFFD became %q", back.Action)
	}
	if n := len(d.Reasons); n != maxList || !strings.HasPrefix(d.Reasons[n-1], "...[cut: 969 more, sha256:") {
		t.Errorf("a list of 1,000 became %d, ending in %q", n, d.Reasons[n-1])
	}
}

// proves R-A4
func TestEncodeAcceptsTenMebibytesInEveryField(t *testing.T) {
	for _, long := range []string{strings.Repeat("\x00", 10<<20), strings.Repeat("\xff", 10<<20)} {
		for _, k := range Kinds() {
			row, _ := k.row()
			v := reflect.New(reflect.TypeOf(row.detail)).Elem()
			for _, f := range v.Fields() {
				switch f.Kind() {
				case reflect.String:
					f.SetString(long)
				case reflect.Slice:
					switch f.Addr().Interface().(type) {
					case *[]BudgetClaim:
						f.Set(reflect.ValueOf(slices.Repeat([]BudgetClaim{{Budget: long, Period: long, Limit: api.Spend{Currency: long}}}, MaxBudgets)))
					case *[]BudgetSettlement:
						f.Set(reflect.ValueOf(slices.Repeat([]BudgetSettlement{{Budget: long, Period: long}}, MaxBudgets)))
					default:
						f.Set(reflect.ValueOf([]string{long}))
					}
				default:
				}
			}
			e := Entry{
				Kind: k, At: entryAt(), Decision: row.decision, Principal: api.Principal(long), Resource: long, Policies: []string{long},
				Detail: v.Interface().(Detail), Run: "r1", Task: "a", Dispatch: "d-01", Attempt: 1, Tool: "see",
			}
			leaf, err := e.Encode()
			if err != nil {
				t.Fatalf("%s: %v", k, err)
			}
			if back, err := DecodeEntry(leaf); err != nil || len(back.Line(1)) > 16<<10 {
				t.Errorf("%s: %v, a line of %d bytes", k, err, len(back.Line(1)))
			}
		}
	}
}

func sampleEntry() Entry {
	tier := api.Reversible
	return Entry{
		Kind: KindDispatchAccepted, At: entryAt(), Principal: "local:ann", Action: "dispatch", Resource: "code-edit", Decision: Allow,
		Policies: []string{"grant:ann"}, Dispatch: "d-0001", Attempt: 1, Role: "transform", Tier: &tier, Token: "t-0001",
		Refs:   map[string]api.Digest{RefManifest: api.DigestOf(nil), RefInput: api.DigestOf([]byte("x"))},
		Detail: DispatchRequest{Subagent: "code-edit", Target: "local", Source: "service", Commit: strings.Repeat("1f3c", 10), Revision: 3},
	}
}

func TestDecodeEntryReturnsWhatWasEncoded(t *testing.T) {
	e := sampleEntry()
	leaf, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeEntry(leaf)
	if diff := cmp.Diff(e, back); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// A log keeps the words that its entries were signed with.
//
// proves R-A4
func TestDecodeEntryReadsKindsThatWereRenamed(t *testing.T) {
	for was, e := range map[string]Entry{
		"http.asked":     {Kind: KindHTTPRequested, Decision: NoDecided, Detail: HTTPRequest{Token: true}},
		"dispatch.found": {Kind: KindDispatchRecovered, Decision: NoDecided, Dispatch: "d-1", Attempt: 1, Detail: DispatchRecovery{State: "started", Worker: "running"}},
	} {
		e.At = entryAt()
		leaf, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		old := bytes.Replace(leaf, []byte(e.Kind), []byte(was), 1)
		back, err := DecodeEntry(old)
		if err != nil || back.Kind != e.Kind {
			t.Errorf("%s: %v, %v", was, back.Kind, err)
		}
		if again, err := back.Encode(); err != nil || !bytes.Equal(again, leaf) {
			t.Errorf("%s is written again as %s, %v", was, again, err)
		}
		// Positive control: the word is no licence for the detail of another kind.
		if _, err := DecodeEntry(bytes.Replace(old, []byte(`"detail":{`), []byte(`"detail":{"shell":"x",`), 1)); err == nil {
			t.Errorf("%s with another detail is accepted", was)
		}
	}
}

// proves R-A4 (one value has one spelling)
func TestDecodeEntryRefusesOtherEncodings(t *testing.T) {
	e := sampleEntry()
	leaf, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"white space":              {`{"action"`, `{ "action"`},
		"unknown member":           {`"v":1}`, `"v":1,"w":1}`},
		"unknown member of detail": {`"revision":3`, `"revision":3,"shell":"x"`},
		"duplicate":                {`"v":1}`, `"v":1,"v":1}`},
		"another kind":             {`"kind":"dispatch.accepted"`, `"kind":"audit.read"`},
		"no kind of ours":          {`"kind":"dispatch.accepted"`, `"kind":"dispatch.forgotten"`},
		"capitals":                 {`"kind":`, `"Kind":`},
		"denied as accepted":       {`"decision":"allow"`, `"decision":"deny"`},
		"a fact as a decision":     {`"decision":"allow"`, `"decision":"none"`},
		"time in another zone":     {`"at":"2026-11-21T14:22:11.123456789Z"`, `"at":"2026-11-21T15:22:11.123456789+01:00"`},
		"no policies":              {`"policies":["grant:ann"]`, `"policies":null`},
		"empty optional member":    {`"v":1}`, `"v":1}`[:0] + `"v":1,"zz":""}`},
		"an unneeded empty member": {`"tier":"reversible"`, `"task":"","tier":"reversible"`},
		"digest of another form":   {`sha256:e3`, `sha256:E3`},
		"unknown tier":             {`"tier":"reversible"`, `"tier":"none"`},
		"newer version":            {`"v":1}`, `"v":2}`},
		"no detail":                {`"detail":{`, `"detail":null,"x":{`},
		"float":                    {`"revision":3`, `"revision":3.5`},
	} {
		bad := strings.Replace(string(leaf), edit[0], edit[1], 1)
		if bad == string(leaf) {
			t.Errorf("%s: the edit changed nothing", name)
		}
		_, err := DecodeEntry([]byte(bad))
		if err == nil {
			t.Errorf("%s was accepted: %s", name, bad)
		}
		// Only what a newer version could have written reads so.
		newer := slices.Contains([]string{"unknown member", "unknown member of detail", "another kind", "no kind of ours", "empty optional member", "newer version"}, name)
		if errors.Is(err, canon.ErrNewer) != newer {
			t.Errorf("%s: %v; want an error that names a newer version: %t", name, err, newer)
		}
	}
	if _, err := DecodeEntry(append(leaf, bytes.Repeat([]byte(" "), MaxEntry)...)); err == nil {
		t.Error("too large an entry was accepted")
	}
}

func TestEncodeRefusesEntriesThatOnlyABugProduces(t *testing.T) {
	for name, edit := range map[string]func(*Entry){
		"unknown kind":          func(e *Entry) { e.Kind = "x" },
		"no detail":             func(e *Entry) { e.Detail = nil },
		"another kind's detail": func(e *Entry) { e.Detail = Access{} },
		"a pointer to a detail": func(e *Entry) { d := DispatchRequest{}; e.Detail = &d },
		"no decision":           func(e *Entry) { e.Decision = "" },
		"ref without a digest":  func(e *Entry) { e.Refs = map[string]api.Digest{"x": "sha256:short"} },
		"ref with a bad name":   func(e *Entry) { e.Refs = map[string]api.Digest{"x\n": api.DigestOf(nil)} },
		"tier beyond the four":  func(e *Entry) { tier := api.Tier(9); e.Tier = &tier },
		"year 10000":            func(e *Entry) { e.At = e.At.AddDate(9000, 0, 0) },
	} {
		e := sampleEntry()
		edit(&e)
		if leaf, err := e.Encode(); err == nil {
			t.Errorf("%s: %s", name, leaf)
		}
	}
}

func TestDeniedUsesTheDenialKind(t *testing.T) {
	for _, k := range Kinds() {
		row, _ := k.row()
		e, err := Entry{Kind: k, At: entryAt(), Detail: row.detail, Dispatch: "d-01", Attempt: 1}.Denied([]string{"because"})
		if (err == nil) != (row.decision == Allow) {
			t.Errorf("%s, which decides %q: %v", k, row.decision, err)
		}
		if err != nil {
			continue
		}
		leaf, err := e.Encode()
		if err != nil || e.Kind.Decided() != Deny || !strings.Contains(string(leaf), "because") {
			t.Errorf("%s denied: %s, %v", k, leaf, err)
		}
	}
}

func TestLineOfEachKind(t *testing.T) {
	detail := func(k Kind, d Detail) Entry {
		e := sampleEntry()
		row, _ := k.row()
		e.Kind, e.Detail, e.Decision, e.Refs = k, d, row.decision, nil
		if e.Decision == NoDecided {
			e.Policies = nil
		}
		return e
	}
	finished := detail(KindDispatchFinished, DispatchEnd{Files: 3, Millis: 4250, Verify: "passed"})
	finished.Refs = map[string]api.Digest{RefPatch: api.DigestOf(nil)}
	failed := detail(KindDispatchFailed, DispatchEnd{Reason: "agent", Millis: 1000})
	failed.Run, failed.Task = "r-1", "build"
	ofTask := sampleEntry()
	ofTask.Run, ofTask.Task, ofTask.Refs = "r-1", "build", nil
	attested := detail(KindDispatchAttested, DispatchAttested{Key: "ed25519:00", Subjects: 2})
	attested.Run, attested.Task = "r-1", "a\nb"
	started := detail(KindTaskStarted, TaskStart{Fence: 3, Locks: []string{"go.mod"}})
	started.Run, started.Task, started.Attempt = "r-1", "build", 2
	settled := detail(KindRunSettled, RunEnd{State: "failed", Done: 2, Failed: 1, Millis: 1500})
	settled.Run = "r-1"
	denied, err := sampleEntry().Denied([]string{`no grant lets local:ann dispatch subagent "code-edit"`})
	if err != nil {
		t.Fatal(err)
	}
	denied.Policies = nil
	for want, e := range map[string]Entry{
		`local:ann requested code-edit on local (source service@1f3c1f3c1f3c) as dispatch d-0001: allowed by policy "grant:ann"`:                                      sampleEntry(),
		`local:ann requested code-edit on local (source service@1f3c1f3c1f3c) as dispatch d-0001: denied ("no grant lets local:ann dispatch subagent \"code-edit\"")`: denied,
		`local:ann requested code-edit on local (source service@1f3c1f3c1f3c) as dispatch d-0001 of task build of run r-1: allowed by policy "grant:ann"`:             ofTask,
		`dispatch d-0001 finished after 4.250 s with a patch of 3 files, verify passed`:                                                                               finished,
		`dispatch d-0001 cancelled by local:bob after 0.020 s (partial result)`:                                                                                       detail(KindDispatchCancelled, DispatchEnd{By: "local:bob", Millis: 20, Partial: true}),
		`dispatch d-0001 failed after 1.000 s: agent: "exit status 3"`:                                                                                                detail(KindDispatchFailed, DispatchEnd{Reason: "agent", Message: "exit status 3", Millis: 1000}),
		`dispatch d-0001 of task build of run r-1 failed after 1.000 s: agent`:                                                                                        failed,
		`dispatch d-0001 started: pid 7, isolation landlock, seccomp`:                                                                                                 detail(KindDispatchStarted, DispatchStart{PID: 7, Isolation: []string{"landlock", "seccomp"}}),
		`dispatch d-0001 of task "a\nb" of run r-1 attested: 2 subjects, signed by ed25519:00`:                                                                        attested,
		`recovered dispatch d-0001 after restart: was started, worker still running`:                                                                                  detail(KindDispatchRecovered, DispatchRecovery{State: "started", Worker: "running"}),
		`recovered dispatch d-0001 after restart: was started, worker dead`:                                                                                           detail(KindDispatchRecovered, DispatchRecovery{State: "started", Worker: "dead"}),
		`local:ann answered dispatch d-0001 (attempt 1) with option 2: allowed by policy "grant:ann"`:                                                                 detail(KindDispatchAnswered, AnswerRequest{Attempt: 1, Option: 2}),
		`local:ann requested to cancel dispatch d-0001, state started: allowed by policy "grant:ann"; reason: "wrong branch"`:                                         detail(KindCancelRequested, CancelRequest{State: "started", Why: "wrong branch"}),
		`caller over unix refused: "uid 12 has no account" (claimed "12")`:                                                                                            detail(KindAuthRefused, AuthRefused{Via: "unix", Message: "uid 12 has no account", Claimed: "12"}),
		`local:ann requested to read the log: list: allowed by policy "grant:ann"`:                                                                                    detail(KindAuditRead, Access{Operation: "list"}),
		`local:ann unpinned dispatch d-0001: allowed by policy "grant:ann"`:                                                                                           detail(KindDispatchUnpinned, Access{}),
		`catalog revision 4 refused, replayed: "number 4 is below 5"; revision 5 stays in force`:                                                                      detail(KindCatalogRefused, RevisionRefused{Cause: "replayed", Number: 4, Current: 5, Message: "number 4 is below 5"}),
		`catalog revision refused, corrupt: "no JSON"; no revision is in force`:                                                                                       detail(KindCatalogRefused, RevisionRefused{Cause: "corrupt", Message: "no JSON"}),
		`set 2 of the deploy keys in force: ed25519:00, ed25519:01 (threshold 2)`:                                                                                     detail(KindCatalogKeys, DeployKeysSeen{Set: 2, Keys: []string{"ed25519:00", "ed25519:01"}, Threshold: 2}),
		`catalog revision 1 by ann@host in force, signed by ed25519:00 (threshold 1): "the first"`:                                                                    detail(KindCatalogRevision, RevisionSeen{Author: "ann@host", Keys: []string{"ed25519:00"}, Number: 1, Threshold: 1, Reason: "the first"}),
		`local:ann sent an invalid "x: allowed by policy \"p\" [#1]" request: "\n\u001b[2K"`:                                                                          detail(KindRequestInvalid, InvalidRequest{Operation: `x: allowed by policy "p" [#1]`, Code: "invalid", Message: "\n\x1b[2K"}),
		`service started: version 1.0, mode system, pid 3`:                                                                                                            detail(KindServiceStarted, ServiceStart{Version: "1.0", Mode: "system", PID: 3}),
		`service started: version 1.0, mode system, pid 4, configuration "/etc/b.yaml" (` + string(api.DigestOf(nil)) + `)`:                                           detail(KindServiceStarted, ServiceStart{Version: "1.0", Mode: "system", PID: 4, Config: &ServiceConfig{File: "/etc/b.yaml", Digest: string(api.DigestOf(nil)), Settings: []string{"log.level=INFO"}}}),
		`signing key for service rotated from ed25519:00 to ed25519:11`:                                                                                               detail(KindKeyRotated, KeyRotation{Use: UseService, Old: "ed25519:00", New: "ed25519:11"}),
		`operator record 2: ceiling of agent:a set to observe, signed by ed25519:00, submitted by local:ann: "on leave"`:                                              detail(KindOperatorRecorded, OperatorDecision{Number: 2, Verb: "ceiling.set", Subject: "agent:a", Ceiling: "observe", Keys: []string{"ed25519:00"}, Reason: "on leave"}),
		`task build of run r-1 (attempt 2) started as dispatch d-0001, fencing token 3, locks go.mod`:                                                                 started,
		`run r-1 settled as failed after 1.500 s: 2 done, 1 failed`:                                                                                                   settled,
	} {
		want = "2026-11-21T14:22:11Z " + want + " [#12]"
		if got := e.Line(12); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// decodeStrict is the reference of DecodeEntry, by the strict decoder.
func decodeStrict(leaf []byte) (Entry, error) {
	var head struct {
		Kind Kind `json:"kind"`
	}
	if err := json.Unmarshal(leaf, &head); err != nil {
		return Entry{}, err
	}
	row, ok := head.Kind.row()
	if !ok {
		return Entry{}, fmt.Errorf("kind %q", head.Kind)
	}
	detail := reflect.New(reflect.TypeOf(row.detail))
	w := wire{Detail: detail.Interface()}
	if err := canon.DecodeExact(leaf, &w); err != nil {
		return Entry{}, err
	}
	return w.exact(leaf, head.Kind, detail)
}

func FuzzDecodeEntry(f *testing.F) {
	for _, k := range Kinds() {
		row, _ := k.row()
		e := Entry{Kind: k, At: entryAt(), Decision: row.decision, Detail: row.detail, Run: "r1", Task: "a", Dispatch: "d-01", Attempt: 1, Tool: "see"}
		leaf, err := e.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(leaf)
	}
	e := sampleEntry()
	leaf, _ := e.Encode()
	f.Add(leaf)
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := DecodeEntry(in)
		if want, wantErr := decodeStrict(in); (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(e, want) {
			t.Fatalf("%q: %+v, %v; the reference %+v, %v", in, e, err, want, wantErr)
		}
		if err != nil {
			return
		}
		if line := e.Line(1); !printable([]byte(line)) {
			t.Fatalf("line %q", line)
		}
		if c, err := canon.Canonicalize(in); err != nil || !bytes.Equal(c, in) {
			t.Fatalf("accepted though not canonical: %q", in)
		}
	})
}

// proves R-A7 (the chain that tells whether an entry is kept back)
func TestLinkEqualsEncodingWithPrev(t *testing.T) {
	prev := Prev{Dispatch: 7, Rule: 1, Run: 1<<53 - 1}
	for _, k := range Kinds() {
		row, _ := k.row()
		for _, principal := range []string{"", `,"principal":"x`, "local:ann"} {
			e := Entry{Kind: k, At: entryAt(), Decision: row.decision, Detail: row.detail, Principal: api.Principal(principal), Resource: `,"principal":"`, Run: "r1", Task: "a", Dispatch: "d-01", Attempt: 1, Tool: "see"}
			leaf, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			linked, err := prev.Link(leaf)
			if err != nil {
				t.Fatal(err)
			}
			e.Prev = prev
			if want, err := e.Encode(); err != nil || !bytes.Equal(linked, want) {
				t.Errorf("%s: %v\n%s\n%s", k, err, linked, want)
			}
			back, err := DecodeEntry(linked)
			if err != nil || back.Prev != prev {
				t.Errorf("%s: %+v, %v", k, back.Prev, err)
			}
		}
	}
	e := sampleEntry()
	leaf, _ := e.Encode()
	empty := bytes.Replace(leaf, []byte(`,"principal"`), []byte(`,"prev":{},"principal"`), 1)
	if _, err := DecodeEntry(empty); err == nil {
		t.Error("an empty link is another spelling of none")
	}
	if _, err := (Prev{Run: 1 << 53}).Link(leaf); err == nil {
		t.Error("a number that not every reader holds was linked")
	}
}

func TestNoDetailHasAMemberThatLinkSearchesFor(t *testing.T) {
	for _, k := range Kinds() {
		row, _ := k.row()
		for f := range reflect.TypeOf(row.detail).Fields() {
			if tag := f.Tag.Get("json"); strings.HasPrefix(tag, "principal") {
				t.Errorf("%s: member %s", k, tag)
			}
		}
	}
}

// hides reports whether a line has a character that is not shown as it is.
func hides(line string) bool {
	return strings.ContainsAny(line, "\n\t") || slices.ContainsFunc(visibletext.Parts(line), func(p visibletext.Part) bool { return p.Hidden != "" })
}

// A line shows what people wrote in their script, and what would hide or command
// something as an escape.
//
// proves R-D7
func TestLinesShowTextInItsScript(t *testing.T) {
	for text, want := range map[string]string{
		"Müller für 日本語, a < 5 && b > 3": `"Müller für 日本語, a < 5 && b > 3"`,
		"\u202egnp.exe\x1b[2J\n":         `"\u202egnp.exe\u001b[2J\n"`,
		"say \"b\"":                      `"say \"b\""`,
		strings.Repeat("\u202e", 200):    `"` + strings.Repeat(`\u202e`, 49) + `..."`,
		strings.Repeat("日", 200):         `"` + strings.Repeat("日", 100) + `..."`,
	} {
		if got := Quote(text); got != want || hides(got) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if !hides("\u202e") || !hides("\x1b") {
		t.Error("control: a hidden character is not found")
	}
}
