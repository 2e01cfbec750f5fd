// Package capture turns the workspace of an agent, whose content is hostile, into
// a patch and a set of outputs. It also resolves commits of a source and checks
// trees out as plain files (R-S4, R-D5).
//
// It never runs anything from a workspace or a source, and never reads outside
// them: every name in a workspace is opened relative to its descriptor with
// openat2, which refuses symbolic links, magic links, ".." and mount points, and
// only regular files within the bounds are read. The host's git runs in a
// directory of ours (Repo) with its own configuration, index and object store
// and no work tree, so no configuration, hook, filter, attribute, fsmonitor,
// replace ref or graft of a workspace or a source applies. A source provides
// refs, read here as text, and objects, which are all hashed again.
//
// A patch has, for every path that changed since the baseline (Snapshot), the
// difference between the base commit and the workspace. LeftOut lists what the
// patch does not carry, with the reason; the patch does not touch those paths.
// Untracked files that the .gitignore files of the base ignore are left out, with
// a line for each top-level name; .gitignore files of the workspace have no
// effect. Symbolic links are captured as text whatever they point at;
// Result.LinksOut names those that point out of the tree.
//
// With the Index of the checkout under a workspace, unchanged files are not read
// and, if the layers of the overlay are known, not even listed; the outcome is
// the same. Layer writes the difference of two trees.
//
// git apply without --index or --cached refuses some correct patches that put a
// directory in the place of a symbolic link: it looks through the link, which is
// still there, and refuses a file below another link or below itself.
package capture
