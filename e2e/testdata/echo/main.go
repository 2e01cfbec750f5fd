// Command echo is a minimal MCP server with the SDK: one tool that returns its
// arguments, without authentication. Benchmarks compare it with bailiwick-mcp.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type said struct {
	Text string `json:"text"`
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in said) (*mcp.CallToolResult, said, error) {
		return nil, in, nil
	})
	var err error
	if len(os.Args) > 1 {
		err = overHTTP(server)
	} else {
		err = server.Run(context.Background(), &mcp.StdioTransport{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func overHTTP(server *mcp.Server) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "echo: listening at http://%s/mcp\n", l.Addr())
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	return http.Serve(l, handler)
}
