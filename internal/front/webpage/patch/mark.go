package patch

import (
	"path"
	"slices"
	"strings"
)

// Mark says why a reviewer should look at a file.
type Mark struct {
	Text  string
	Title string
}

// rule marks paths, all in lower case.
type rule struct {
	mark    Mark
	folders []string // anywhere in the path
	names   []string // of the file
	begins  []string // of its name
	ends    []string // of its name
}

// rules are those for paths that decide what runs, where and with what.
func rules() []rule {
	return []rule{
		{
			mark: Mark{"CI", "what this file says runs with the rights of the CI or of who checks the patch out"},
			folders: []string{
				".github/workflows", ".github/actions", ".circleci", ".gitea/workflows", ".forgejo/workflows", ".woodpecker", ".buildkite", ".husky",
				".githooks", ".gitlab/ci", ".azure-pipelines", ".teamcity",
			},
			names: []string{
				".gitlab-ci.yml", ".travis.yml", "appveyor.yml", ".appveyor.yml", "azure-pipelines.yml", "jenkinsfile", "bitbucket-pipelines.yml",
				".drone.yml", ".woodpecker.yml", "cloudbuild.yaml", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "lefthook.yml", "codeowners",
				".gitattributes", ".gitmodules", "renovate.json", "dependabot.yml",
			},
		},
		{
			mark: Mark{"dependencies", "this file chooses code of others that is built or run"},
			names: []string{
				"go.mod", "go.sum", "go.work", "go.work.sum", "package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml",
				"pnpm-workspace.yaml", "bun.lock", "bun.lockb", ".npmrc", ".yarnrc.yml", "deno.json", "deno.lock", "pyproject.toml", "setup.py",
				"setup.cfg", "pipfile", "pipfile.lock", "poetry.lock", "uv.lock", "pdm.lock", "pip.conf", "environment.yml", "cargo.toml", "cargo.lock",
				"gemfile", "gemfile.lock", "composer.json", "composer.lock", "pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle",
				"gradle.lockfile", "libs.versions.toml", "mix.exs", "mix.lock", "pubspec.yaml", "pubspec.lock", "package.swift", "package.resolved",
				"podfile", "podfile.lock", "packages.lock.json", "nuget.config", "directory.packages.props", "flake.nix", "flake.lock", "conanfile.txt",
				"vcpkg.json",
			},
			begins: []string{"requirements"},
			ends:   []string{".csproj", ".fsproj", ".gemspec", ".cabal", ".podspec"},
		},
		{
			mark: Mark{"build", "what this file says runs when the project is built"},
			names: []string{
				"makefile", "gnumakefile", "dockerfile", "containerfile", "cmakelists.txt", "meson.build", "build.bazel", "workspace", "module.bazel",
				"justfile", "taskfile.yml", "rakefile", "build.rs", "conftest.py", "docker-compose.yml", "compose.yaml", "compose.yml", "tox.ini",
				"noxfile.py", ".envrc",
			},
			begins: []string{"dockerfile."},
			ends:   []string{".mk"},
		},
		{
			mark:    Mark{"agent", "agents and editors read instructions or settings from this file"},
			folders: []string{".claude", ".cursor", ".codex", ".gemini", ".opencode", ".vscode", ".idea", ".devcontainer"},
			names:   []string{"claude.md", "agents.md", "gemini.md", ".mcp.json", "mcp.json", ".cursorrules", ".windsurfrules", "copilot-instructions.md", "opencode.json", ".aider.conf.yml"},
		},
	}
}

// generated reports whether a tool writes the file, so that people read it last.
func generated(name string) bool {
	return slices.Contains([]string{
		"go.sum", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "poetry.lock", "uv.lock", "pdm.lock",
		"cargo.lock", "gemfile.lock", "composer.lock", "pipfile.lock", "mix.lock", "flake.lock",
	}, name)
}

func (r rule) matches(file string) bool {
	name := path.Base(file)
	return slices.Contains(r.names, name) ||
		slices.ContainsFunc(r.folders, func(dir string) bool { return strings.Contains("/"+file, "/"+dir+"/") }) ||
		slices.ContainsFunc(r.begins, func(s string) bool { return strings.HasPrefix(name, s) }) ||
		slices.ContainsFunc(r.ends, func(s string) bool { return strings.HasSuffix(name, s) })
}

// marksOf returns the marks of a path.
func marksOf(rules []rule, file string) (marks []Mark) {
	for _, r := range rules {
		if r.matches(strings.ToLower(file)) {
			marks = append(marks, r.mark)
		}
	}
	return marks
}

// finish derives what the whole file says.
func (f *File) finish(rules []rule) {
	for _, m := range append(marksOf(rules, f.Path), marksOf(rules, f.Old)...) {
		if !slices.Contains(f.Marks, m) {
			f.Marks = append(f.Marks, m)
		}
	}
	f.Hidden += hidden([]byte(f.Path))
	for mode, m := range map[string]Mark{
		"120000": {"link", "a symbolic link: its content is where it leads to"},
		"160000": {"submodule", "a commit of another repository"},
	} {
		if f.NewMode == mode {
			f.Marks = append(f.Marks, m)
		}
	}
	if f.NewMode == "100755" && f.OldMode != "100755" {
		f.Marks = append(f.Marks, Mark{"executable", "the file becomes executable"})
	}
	if f.OldMode != "" && f.NewMode != "" && typeOf(f.OldMode) != typeOf(f.NewMode) {
		f.Marks = append(f.Marks, Mark{"type", "the kind of the file changes"})
	}
	if f.Hidden > 0 {
		f.Marks = append(f.Marks, Mark{"hidden characters", "added text or the path has characters that are invisible or change how text is read; they are spelled out"})
	}
	f.Folded = f.Added+f.Removed > manyLines || generated(strings.ToLower(path.Base(f.Path)))
}

// typeOf is the kind of file that a mode means.
func typeOf(mode string) string {
	if len(mode) < 3 {
		return mode
	}
	return mode[:3]
}
