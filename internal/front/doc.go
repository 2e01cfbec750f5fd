// Package front is a group of packages. It has what people and programs speak to: the API server, MCP, the page, and the
// command lines.
//
// It never decides; it reads requests, calls the packages that do, and shows answers.
package front
