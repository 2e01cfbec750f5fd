// Package toolhost is bailiwick-toolhost: the one process that has the credential of a
// tool server, and the only way to that server. It starts a program or declared command in
// a jail of its own, or connects to a server over HTTP, speaks MCP to it, and makes the
// calls that the service asks for. What it passes back is bounded, valid and free of
// secrets.
//
// The jail is that of an agent, but for what its server is given: the files of one
// capability, a writable copy of its own; values of secrets as variables; hosts of an
// egress list through a broker; and ports of 127.0.0.1 that each lead to one address
// that a human signed. It ends with the service: when its standard input ends.
//
// Carries R-G5.
package toolhost
