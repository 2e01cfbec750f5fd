// Package toolhost runs one tool server or declared command in a jail of its own, with
// its own secrets and network, for bailiwick-toolhost. Its standard streams are
// those of the server.
//
// The jail is that of an agent, but for what its server is given: the files of one
// capability, a writable copy of its own; values of secrets as variables; hosts of an
// egress list through a broker; and ports of 127.0.0.1 that each lead to one address
// that a human signed. It writes nothing on the host, and ends with its starter: when
// its standard input ends.
//
// Carries R-G5.
package toolhost
