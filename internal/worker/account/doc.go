// Package account starts a program under an account of its own: a block of three host uids that nothing else has, with a root
// directory that shows only what it is given.
//
// The caller is root. The program runs in a user namespace that maps exactly its block, so that it is root there and nowhere
// else, and in a mount namespace that was built before by root: the kernel then locks every mount, and the program can neither
// uncover nor remount one. Directories of other accounts are idmapped mounts: on disk their files keep their owner, and the
// program sees them as its own. So the service reads and deletes what its workers write, and uids keep workers apart. A jail
// that the program starts uses the block's other two ids.
//
// Without a block the program runs as the caller, as a service without root starts it. The package decides nothing: which
// program, which directories and which limits is the caller's.
//
// Carries R-S1 and R-S2 of mode system.
package account
