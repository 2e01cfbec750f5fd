package gitexec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// move makes .git of a repository a symbolic link to where it moves it.
func move(t *testing.T, repo string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "store")
	if err := errors.Join(os.Rename(repo+"/.git", to), os.Symlink(to, repo+"/.git")); err != nil {
		t.Fatal(err)
	}
	return to
}

// A .git that is a symbolic link leads where git follows it.
func TestFindFollowsALinkAsGitDoes(t *testing.T) {
	for name, change := range map[string]func(repo string){
		"directory": func(repo string) { move(t, repo) },
		"file": func(repo string) {
			store := move(t, repo)
			link := filepath.Join(filepath.Dir(store), "file")
			rel, err := filepath.Rel(repo, store)
			if err := errors.Join(err, os.WriteFile(link, []byte("gitdir: "+rel+"\n"), 0o600), os.Remove(repo+"/.git"), os.Symlink(link, repo+"/.git")); err != nil {
				t.Fatal(err)
			}
		},
		"core.worktree": func(repo string) {
			rel, err := filepath.Rel(move(t, repo), repo)
			if err != nil {
				t.Fatal(err)
			}
			git(t, repo, "config", "core.worktree", rel)
		},
	} {
		repo := repository(t)
		change(repo)
		f, err := At(t.Context(), nil, repo)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := git(t, repo, "rev-parse", "--absolute-git-dir"); f.GitDir != want || f.Top != repo || f.Named != "" && f.Named != git(t, repo, "rev-parse", "--show-toplevel") {
			t.Errorf("%s: %+v, git says %s", name, f, want)
		}
	}
	for to, want := range map[string]string{"nowhere": "leads to no git directory", ".git": "leads to no git directory", "/dev/null": "neither a directory nor a file"} {
		repo := t.TempDir()
		if err := os.Symlink(to, repo+"/.git"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Find(repo); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), repo+"/.git") || errors.Is(err, os.ErrNotExist) {
			t.Errorf("a link to %s: %v", to, err)
		}
	}
}

// The condition gitdir of includeIf holds for the name of a link and for where it leads.
func TestIncludeIfSeesALinkAsGitDoes(t *testing.T) {
	repo := repository(t)
	store := move(t, repo)
	home := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1"}
	for _, where := range []string{repo + "/", store, "/nowhere/"} {
		if err := errors.Join(os.WriteFile(home+"/.gitconfig", []byte("[includeIf \"gitdir:"+where+"\"]\n\tpath = inc\n"), 0o600), os.WriteFile(home+"/inc", []byte("[user]\n\tname = Ann\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		f, err := At(t.Context(), env, repo)
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "Ann"}[where != "/nowhere/"]
		if got := f.Setting("user.name"); got != want {
			t.Errorf("gitdir:%s: %q, want %q", where, got, want)
		}
	}
}

// The account behind each step to the git directory is compared, that of a link itself
// included. The control has one owner.
//
// proves R-P9
func TestEveryStepToAGitDirectoryHasTheOwner(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "it's mine")
	if err := os.Mkdir(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "init", "--quiet", "--template=")
	store := move(t, repo)
	check := func() error {
		f, err := At(t.Context(), nil, repo)
		if err != nil {
			t.Fatal(err)
		}
		return f.CheckOwner(nil)
	}
	if err := check(); err != nil {
		t.Fatalf("control: %v", err)
	}
	for _, place := range []string{repo, repo + "/.git", store} {
		if err := os.Lchown(place, 4711, 4711); err != nil {
			t.Fatal(err)
		}
		// The advice is one command of a shell, also for a path with a quote.
		err := check()
		if want := `git config --global --add safe.directory '` + strings.ReplaceAll(repo, "'", `'\''`) + `'`; err == nil || !strings.Contains(err.Error(), place+" belongs to another account (user 4711)") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", place, err)
		}
		if err := os.Lchown(place, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := check(); err != nil {
		t.Errorf("control: %v", err)
	}
}
