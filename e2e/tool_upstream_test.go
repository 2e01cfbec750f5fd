package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Servers that people use, from npm, run as upstreams. An agent that may read the whole
// environment of one finds what the catalog declares and nothing of ours; what one
// dispatch writes into a server with a session for each dispatch, another does not see.
// The control: the same tool shows a planted variable.
//
// proves R-G5
func TestPublicToolServersWork(t *testing.T) {
	t.Parallel()
	w := newCallWorld(t, 0, []string{"reader reversible"}, fmt.Sprintf(`
  - server: everything
    stdio: {%s, env: {PLANTED: in-the-catalog}}
    allow:
      - {tool: get-env, roles: [reader], tier: observe}
      - {tool: echo, roles: [reader], tier: observe}
      - {tool: get-structured-content, roles: [reader], tier: observe}
      - {tool: get-tiny-image, roles: [reader], tier: observe}
      - {tool: trigger-long-running-operation, roles: [reader], tier: observe}
  - server: files
    stdio: {%s, capability: notes}
    allow:
      - {tool: read_text_file, roles: [reader], tier: observe}
      - {tool: write_file, roles: [reader], tier: reversible}
      - {tool: list_directory, roles: [reader], tier: observe}
  - server: memory
    stdio: {%s, env: {MEMORY_FILE_PATH: /tmp/memory.jsonl}}
    allow: [{tool: create_entities, roles: [reader], tier: reversible}, {tool: read_graph, roles: [reader], tier: observe}]
  - server: common
    stdio: {%s, env: {MEMORY_FILE_PATH: /tmp/memory.jsonl}}
    session: shared
    allow: [{tool: create_entities, roles: [reader], tier: reversible}, {tool: read_graph, roles: [reader], tier: observe}]
`, npmServer(t, "@modelcontextprotocol/server-everything", "dist", "index.js"),
		strings.Replace(npmServer(t, "@modelcontextprotocol/server-filesystem", "dist", "index.js"), "index.js]", "index.js, .]", 1),
		npmServer(t, "@modelcontextprotocol/server-memory", "dist", "index.js"), npmServer(t, "@modelcontextprotocol/server-memory", "dist", "index.js")), "")
	w.write("project/notes/note.txt", "a note\n", 0o644)
	w.replace(manifest, "capabilities:\n", "capabilities:\n  - {name: notes, from: notes}\n")
	w.pinned()
	w.env = append(w.env, "OF_THE_SERVICE=must-not-be-seen")
	w.up()

	d := w.do("reader", `
list > outputs/list
call everything_get-env > outputs/env
call everything_echo '{"message": "hello"}' > outputs/echo
call everything_echo '{"message": 5}' > outputs/wrong
call everything_get-structured-content '{"location": "Chicago"}' > outputs/structured
call everything_get-tiny-image > outputs/image
call everything_trigger-long-running-operation '{"duration": 0.2, "steps": 2}' > outputs/long
call files_read_text_file '{"path": "note.txt"}' > outputs/note
call files_write_file '{"path": "new.txt", "content": "new"}' > outputs/written
call files_list_directory '{"path": "."}' > outputs/directory
call files_read_text_file '{"path": "/etc/passwd"}' > outputs/outside
for server in memory common; do
	call ${server}_create_entities '{"entities": [{"name": "Ada", "entityType": "person", "observations": ["first"]}]}' > outputs/$server
	call ${server}_read_graph > outputs/$server-graph
done
ls note.txt new.txt > outputs/here 2>&1; true`)
	if list := w.output(d, "list"); strings.Count(list, "\n") != 14 || strings.Contains(list, "delete_entities") {
		t.Errorf("the tools of reader: %s", list)
	}
	env := w.output(d, "env")
	wantIn(t, "the environment of a server", env, "in-the-catalog")
	for _, word := range []string{"must-not-be-seen", w.dir, "XDG_", "BAILIWICK_MODEL", "SSH_"} {
		if strings.Contains(env, word) {
			t.Errorf("a server sees %s: %s", word, env)
		}
	}
	for name, words := range map[string][]string{
		"echo": {"hello"}, "wrong": {"isError", "message"}, "structured": {"structuredContent", "temperature"}, "image": {"image/png"}, "long": {"completed"},
		"note": {"a note"}, "written": {"new.txt"}, "directory": {"new.txt", "note.txt"}, "outside": {`"isError":true`},
		"memory": {"Ada"}, "common": {"Ada"}, "memory-graph": {"Ada"}, "common-graph": {"Ada"}, "here": {"cannot access 'note.txt'", "cannot access 'new.txt'"},
	} {
		wantIn(t, name, w.output(d, name), words...)
	}
	// Another dispatch: a server of its own, but for the shared one.
	d = w.do("reader", `
for server in memory common; do call ${server}_read_graph > outputs/$server; done
call files_list_directory '{"path": "."}' > outputs/directory`)
	for name, has := range map[string]bool{"memory": false, "common": true} {
		if got := w.output(d, name); strings.Contains(got, "Ada") != has {
			t.Errorf("%s in the second dispatch: %s", name, got)
		}
	}
	if got := w.output(d, "directory"); strings.Contains(got, "new.txt") || !strings.Contains(got, "note.txt") {
		t.Errorf("the files of the second dispatch: %s", got)
	}
}

// A database behind a server of tools: its password is in the secret store and in the
// server's own jail, and an agent that uses the database finds it nowhere; neither does
// anybody in what the installation keeps. The control: the sweep finds a planted one.
//
// takeover both modes, tool server: yes read a secret
//
// proves R-G5
func TestDatabaseBehindAToolServer(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		holder := newWorld(t, 0)
		db, password := newPostgres(holder), newKey()
		db.sql(fmt.Sprintf("CREATE ROLE app LOGIN PASSWORD '%s'; CREATE TABLE plants (name text); INSERT INTO plants VALUES ('basil'), ('mint'); GRANT ALL ON plants TO app;", password))
		w := newCallWorld(t, uid, []string{"reader observe"}, fmt.Sprintf(`
  - server: plants
    stdio: {%s, env: {DATABASE_URL: "postgres://app@127.0.0.1:5432/postgres"}, connect: {5432: "unix:%s"}}
    credential: {env: {PGPASSWORD: database}}
    allow: [{tool: query, roles: [reader], tier: observe}]
`, npmServer(t, "@zeddotdev/postgres-context-server", "index.mjs"), db.socket()), "")
		w.replace(manifest, "\nenvs:\n", "\nsecrets:\n  - {name: database, ref: \"file:database\"}\nenvs:\n")
		w.pinned("database", password)
		w.up()
		if d := w.setSecret("database", password); d.status != 0 {
			t.Fatal(d)
		}
		d := w.do("reader", `
call plants_query '{"sql": "select name from plants order by 1"}' > outputs/rows
call plants_query '{"sql": "insert into plants values ('"'weed'"')"}' > outputs/insert
call plants_pg-schema '{"mode": "all"}' > outputs/schema
env > outputs/env
(echo > /dev/tcp/127.0.0.1/5432) 2> outputs/direct
ls `+db.dir+` > outputs/socket 2>&1
grep -rl "bwke[y]-" /proc/[0-9]*/environ /proc/[0-9]*/cmdline /workspace /tmp /home > outputs/found 2>/dev/null; true`)
		wantIn(t, "rows", w.output(d, "rows"), "basil", "mint")
		wantIn(t, "an insert", w.output(d, "insert"), "read-only transaction")
		wantIn(t, "a tool that no role has", w.output(d, "schema"), "plants_pg-schema")
		wantIn(t, "the database from the agent's jail", w.output(d, "direct"), "refused")
		wantIn(t, "the socket from the agent's jail", w.output(d, "socket"), "No such file")
		if got := w.output(d, "found") + w.output(d, "env"); strings.Contains(got, "/") && strings.Contains(got, "environ") || strings.Contains(got, password) {
			t.Errorf("the agent finds %s", got)
		}
		if rows := db.sql("select count(*) from plants"); rows != "2" {
			t.Errorf("%s rows", rows)
		}
		if all := w.calls(d.ID); len(all) != 3 || all[0].State != "returned" || all[2].Decision != "deny" {
			t.Errorf("calls: %+v", all)
		}
		w.exported(string(d.ID))
		w.write("audit.json", w.must("audit", "list", "-o", "json"), 0o600)
		w.must("down")
		if left := w.filesWith(password); len(left) > 0 {
			t.Errorf("the password is in %v", left)
		}
		w.write("state/bailiwick/planted", "x "+password, 0o600)
		if left := w.filesWith(password); len(left) != 1 {
			t.Errorf("the control: the sweep finds %v", left)
		}
		must(t, os.Remove(w.path("state/bailiwick/planted")))
	})
}

// Servers of each revision of MCP work, over standard streams and over HTTP.
//
// proves R-G5
func TestToolServersOfEachRevision(t *testing.T) {
	t.Parallel()
	w := newCallWorld(t, 0, []string{"reader observe"}, "", "")
	w.buildFor("tools", "toolserver")
	var tools strings.Builder
	revisions := map[string]string{"one": "2025-06-18", "two": "2025-11-25", "three": "2026-07-28"}
	for name, revision := range revisions {
		fmt.Fprintf(&tools, "  - server: %s\n    stdio: {command: [%s, %q], readOnly: [%s]}\n    allow: [{tool: echo, roles: [reader], tier: observe}]\n", name, w.path("tools/toolserver"), revision, w.path("tools"))
		fmt.Fprintf(&tools, "  - server: %s-web\n    http: {url: %q}\n    allow: [{tool: echo, roles: [reader], tier: observe}]\n", name, newToolHost(revision).serve(t))
	}
	w.toolManifest([]string{"reader observe"}, tools.String(), "")
	w.pinned()
	w.up()
	d := w.do("reader", `for s in one two three one-web two-web three-web; do call ${s}_echo '{"text": "to '$s'"}' > outputs/$s; done`)
	for name, revision := range revisions {
		for _, s := range []string{name, name + "-web"} {
			wantIn(t, s, w.output(d, s), "to "+s, revision)
		}
	}
	for _, c := range w.calls(d.ID) {
		if c.State != "returned" || c.Error != "" || c.Decision != "allow" || c.Tier != api.Observe {
			t.Errorf("%+v", c)
		}
	}
}
