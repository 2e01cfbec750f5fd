// Package capture stands between a source repository, a worker's workspace
// and the patch that leaves it. It resolves commits of a source, checks trees
// out as plain files, and turns a workspace, whose content is hostile, into a
// patch and a set of outputs (R-S4, R-D5).
//
// It never runs anything from a workspace or a source and never reads outside
// them: every name below a workspace is opened relative to the workspace's
// handle with openat2, which refuses symbolic links, magic links, ".." and
// mount points, and only what is a regular file, by fstat, within the bounds
// is read. The host's git program does what only git should do, in a
// repository directory of ours (Repo) with its own configuration, index and
// object store and no work tree, so that no configuration, hook, filter,
// attribute, fsmonitor, replace ref or graft of a workspace or a source is
// ever in force. From a source come refs (read here, as text) and objects
// (borrowed; every one that is used is hashed again and must have its name).
//
// What is in a patch: for every path that changed since the baseline
// (Snapshot), the difference from the base commit to what the path is now.
// What the patch does not carry is listed in LeftOut with the reason, and such
// a path is not touched by the patch. Untracked files that the .gitignore
// files of the BASE commit ignore are left out, a line for each top-level
// name; .gitignore files of the workspace are content like any other and have
// no say. Symbolic links are text: they are captured whatever they point at,
// and those that point out of the tree are named in Result.LinksOut.
//
// With the Index of the checkout under a workspace, files that are still the
// checkout's are neither read nor, where an overlay's layers are known, listed;
// the outcome is the same. Layer makes what lies between two trees.
//
// One patch is right and git apply still refuses it in a work tree: where a
// symbolic link of the base that leads to itself makes room for a directory,
// git stumbles over the loop. git apply --cached takes it.
package capture
