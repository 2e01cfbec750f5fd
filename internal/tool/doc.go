// Package tool is a group of packages. It has the way from an agent to a tool: the view of a role, the decision on a call, and
// the connections to tool servers.
//
// It never gives an agent a credential, and never calls a tool before the entry is durable.
package tool
