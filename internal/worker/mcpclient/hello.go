package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
)

// discovery is the first revision of the protocol without sessions.
const discovery = "2026-07-28"

// discoverTime is how long a server may leave server/discover without an answer before
// it is taken for an older one.
const discoverTime = 5 * time.Second

func implementation() string {
	return fmt.Sprintf(`{"name":"bailiwick","version":%q}`, api.Version())
}

// meta is the _meta of requests in the revision without sessions.
func meta(rest string) string {
	return `{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":` + implementation() + `,"io.modelcontextprotocol/protocolVersion":"` + discovery + `"` + rest + `}`
}

// offer is what a server offers when a session begins. Of it only tools are used.
type offer struct {
	Capabilities struct {
		Tools                           *struct{ ListChanged bool }
		Completions, Prompts, Resources json.RawMessage
	}
	Instructions string
}

// open agrees on a revision of the protocol. Without discover, it asks for an older one
// at once.
func (s *Session) open(ctx context.Context, discover bool) error {
	if discover {
		modern, err := s.discover(ctx)
		if modern || err != nil {
			return err
		}
	}
	result, err := s.ask(ctx, "initialize", func(int64) []byte {
		return []byte(`{"capabilities":{},"clientInfo":` + implementation() + `,"protocolVersion":"` + mcpwire.Revisions()[1] + `"}`)
	}, nil, nil)
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	var hello struct {
		ProtocolVersion string
		offer
	}
	if err := json.Unmarshal(result, &hello); err != nil || !slices.Contains(mcpwire.Revisions()[1:], hello.ProtocolVersion) {
		return fmt.Errorf("the server speaks revision %.40q of the protocol: want one of %s", hello.ProtocolVersion, strings.Join(mcpwire.Revisions(), ", "))
	}
	s.revision, s.offer = hello.ProtocolVersion, hello.offer
	s.link.agreed(s.revision)
	if err := s.notify(ctx, "notifications/initialized", "{}"); err != nil {
		return err
	}
	if s.changed != nil {
		s.link.listen()
	}
	return nil
}

// discover reports whether the server speaks the revision without sessions.
func (s *Session) discover(ctx context.Context) (bool, error) {
	s.link.agreed(discovery)
	defer func() { s.link.agreed(s.revision) }()
	short, cancel := context.WithTimeout(ctx, discoverTime)
	defer cancel()
	result, err := s.ask(short, "server/discover", func(int64) []byte { return []byte(`{"_meta":` + meta("") + `}`) }, nil, nil)
	var ended *EndedError
	switch {
	case errors.As(err, &ended), ctx.Err() != nil:
		return false, cmp.Or(err, context.Cause(ctx))
	case err != nil:
		return false, nil //nolint:nilerr // an older server does not know the method
	}
	var hello struct {
		SupportedVersions []string
		offer
	}
	if err := json.Unmarshal(result, &hello); err != nil || !slices.Contains(hello.SupportedVersions, discovery) {
		return false, nil //nolint:nilerr // so initialize says what is wrong
	}
	s.revision, s.offer = discovery, hello.offer
	if t := hello.Capabilities.Tools; t != nil && t.ListChanged && s.changed != nil {
		go s.subscribe() //nolint:gosec // G118: until the session ends, not the opening
	}
	return true, nil
}

// subscribe asks a server without sessions to say when its tools change, until the
// session ends. A server that refuses is asked for its tools from time to time anyway.
func (s *Session) subscribe() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	_, _ = s.ask(ctx, "subscriptions/listen", func(int64) []byte {
		return []byte(`{"_meta":` + meta("") + `,"notifications":{"toolsListChanged":true}}`)
	}, nil, nil)
}

// Bounds of what a server defines.
const (
	maxTools       = 1000
	maxDefinitions = 4 << 20 // bytes
)

// Offer returns the definitions of all tools of the server in canonical form, sorted by
// name, and what else it has.
func (s *Session) Offer(ctx context.Context) (Offer, error) {
	list, u, err := s.definitions(ctx)
	return Offer{list, s.offer.list(u)}, err
}

// unused counts the tools whose definitions have parts that no agent gets.
type unused struct{ icons, meta int }

// list returns what a server has and no agent gets.
func (o *offer) list(u unused) (parts []string) {
	for _, c := range []struct {
		name string
		has  bool
	}{{"resources", o.Capabilities.Resources != nil}, {"prompts", o.Capabilities.Prompts != nil}, {"completions", o.Capabilities.Completions != nil}, {"instructions", o.Instructions != ""}} {
		if c.has {
			parts = append(parts, c.name)
		}
	}
	for _, c := range []struct {
		name  string
		tools int
	}{{"icons", u.icons}, {"_meta", u.meta}} {
		switch {
		case c.tools == 1:
			parts = append(parts, c.name+" of one tool")
		case c.tools > 1:
			parts = append(parts, fmt.Sprintf("%s of %d tools", c.name, c.tools))
		}
	}
	return parts
}

func (s *Session) definitions(ctx context.Context) (list []api.ToolDefinition, u unused, err error) {
	list = []api.ToolDefinition{}
	size, cursor := 0, ""
	for {
		result, err := s.ask(ctx, "tools/list", func(int64) []byte { return s.listParams(cursor) }, nil, nil)
		if err != nil {
			return nil, u, fmt.Errorf("tools/list: %w", err)
		}
		next := ""
		if size += len(result); size > maxDefinitions {
			return nil, u, fmt.Errorf("tools/list: more than %d bytes", maxDefinitions)
		}
		err = members(result, func(name string, value json.RawMessage) error {
			switch name {
			case "nextCursor":
				return json.Unmarshal(value, &next)
			case "tools":
				return elements(value, func(raw json.RawMessage) error {
					d, err := parseDefinition(raw)
					list = append(list, d)
					if member(raw, "icons") != nil {
						u.icons++
					}
					if member(raw, "_meta") != nil {
						u.meta++
					}
					return err
				})
			}
			return nil
		})
		switch {
		case err != nil:
			return nil, u, fmt.Errorf("tools/list: the list: %w", err)
		case len(list) > maxTools:
			return nil, u, fmt.Errorf("tools/list: more than %d tools", maxTools)
		case next != "" && next == cursor:
			return nil, u, errors.New("tools/list: a page follows itself")
		case next == "":
			list, err = sorted(list)
			return list, u, err
		}
		cursor = next
	}
}

func sorted(list []api.ToolDefinition) ([]api.ToolDefinition, error) {
	slices.SortFunc(list, func(a, b api.ToolDefinition) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(list); i++ {
		if list[i].Name == list[i-1].Name {
			return nil, fmt.Errorf("tools/list: tool %.80q is listed twice", list[i].Name)
		}
	}
	return list, nil
}

func (s *Session) listParams(cursor string) []byte {
	params := map[string]any{}
	if cursor != "" {
		params["cursor"] = cursor
	}
	if s.revision == discovery {
		params["_meta"] = json.RawMessage(meta(""))
	}
	text, _ := json.Marshal(params) // all of it can be marshalled
	return text
}

// parseDefinition takes what a client uses of a definition. raw is canonical, and so
// are its parts.
func parseDefinition(raw json.RawMessage) (d api.ToolDefinition, err error) {
	err = members(raw, func(name string, value json.RawMessage) error {
		switch name {
		case "name":
			return json.Unmarshal(value, &d.Name)
		case "title":
			return json.Unmarshal(value, &d.Title)
		case "description":
			return json.Unmarshal(value, &d.Description)
		case "inputSchema":
			return copyObject(value, &d.InputSchema)
		case "outputSchema":
			return copyObject(value, &d.OutputSchema)
		case "annotations":
			return copyObject(value, &d.Annotations)
		case "execution":
			var x struct {
				TaskSupport string `json:"taskSupport"`
			}
			err := json.Unmarshal(value, &x)
			d.TaskOnly = x.TaskSupport == "required"
			return err
		}
		return nil
	})
	if err == nil && (d.Name == "" || d.InputSchema == nil) {
		err = errors.New("a tool without a name or an input schema")
	}
	return d, err
}

// copyObject copies an object.
func copyObject(value json.RawMessage, to *json.RawMessage) error {
	if value[0] != '{' {
		return errMember
	}
	*to = slices.Clone(value)
	return nil
}
