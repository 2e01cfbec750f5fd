package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *findVerbs) printShown(s shown, who api.Who) {
	t.Row(string(s.Kind), "%s", s.Name)
	t.OptionalRow("", "%s", s.Description)
	t.OptionalRow("principal", "%s", string(s.Principal))
	if s.Tier != nil {
		t.Row("tier", "%s, in role %s", s.Tier, s.Role)
	}
	if s.Ceiling != nil {
		t.Row("up to", "%s", s.Ceiling)
	}
	t.OptionalRow("mode", "%s", string(s.Mode))
	t.OptionalRow("agent", "%s", s.Agent)
	if s.Model != nil {
		t.Row("model", "%s", modelText(*s.Model))
	}
	t.printModel(s.ArtifactInfo)
	t.OptionalRow("network", "%s", console.Line(strings.Join(s.Egress, ", ")))
	t.Rows("secrets", len(s.Secrets), func(i int) string { return secretText(s.Secrets[i]) })
	t.OptionalRow("repository", "%s", s.Repo)
	t.OptionalRow("subagents", "%s", console.Joined(append(s.Subagents, s.With...), ", ", ""))
	targets := console.Joined(s.Targets, ", ", "")
	if s.Target != "" {
		targets += fmt.Sprintf(" (default %s)", s.Target)
	}
	t.OptionalRow("targets", "%s", targets)
	t.OptionalRow("sources", "%s", console.Joined(s.Sources, ", ", ""))
	t.OptionalRow("envs", "%s", console.Joined(s.Envs, ", ", ""))
	t.OptionalRow("extra", "capabilities %s", console.Joined(s.Capabilities, ", ", ""))
	t.OptionalRow("input", "%s", schemaText(s.Input))
	t.OptionalRow("output", "%s", schemaText(s.Output))
	if s.Limits != nil {
		t.Row("limits", "%s", limitsText(*s.Limits))
	}
	if s.Verify {
		t.Row("verify", "a command judges its patch")
	}
	t.Rows("may run it", len(s.MayRun), func(i int) string {
		return fmt.Sprintf("%s, by grant %s", s.MayRun[i].Principal, s.MayRun[i].Grant)
	})
	t.Row("registered", "%s, in force in catalog revision %d", t.Time(s.RegisteredAt), s.Revision)
	t.Row("digest", "%s", s.Digest)
	t.OptionalRow("example", "%s", s.Example)
}

// printModel prints the description of a model.
func (t *findVerbs) printModel(a api.ArtifactInfo) {
	t.OptionalRow("api", "%s", string(a.API))
	t.OptionalRow("endpoint", "%s", a.Endpoint)
	levels := slices.Sorted(maps.Keys(a.Levels))
	t.Rows("levels", len(levels), func(i int) string {
		id := a.Levels[levels[i]]
		text := fmt.Sprintf("%s: %s", levels[i], id)
		if p, ok := a.Prices[id]; ok {
			text += fmt.Sprintf(", %s per million tokens: input %s, output %s, cache read %s, cache write %s", cmp.Or(a.Currency, "usd"), p.Input, p.Output, p.CacheRead, p.CacheWrite)
		}
		return text
	})
}

// modelText is NAME/LEVEL with the provider's id.
func modelText(m api.ModelUse) string { return fmt.Sprintf("%s/%s: %s", m.Name, m.Level, m.ID) }

// secretText says how a secret is used.
func secretText(s api.SecretRef) string {
	switch s.Use {
	case api.SecretModel:
		return fmt.Sprintf("%s: the broker adds it to requests to the model", s.Name)
	case api.SecretBrokered:
		return fmt.Sprintf("%s: the broker adds it; the agent has a placeholder in %s", s.Name, s.Var)
	case api.SecretExposed:
		return fmt.Sprintf("%s: the agent has it in %s", s.Name, s.Var)
	}
	return string(s.Name)
}

// schemaText returns a JSON Schema on one line if it is short.
func schemaText(schema json.RawMessage) string {
	if len(schema) <= 80 {
		return string(schema)
	}
	return console.Arguments(schema)
}

// limitsText lists the limits that are set, by their names in the manifest.
func limitsText(l api.Limits) string {
	var list []string
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if f := v.Field(i); !f.IsZero() {
			value := f.Interface()
			if d, ok := value.(api.Duration); ok {
				value = time.Duration(d)
			}
			list = append(list, fmt.Sprintf("%s %v", name, value))
		}
	}
	return strings.Join(list, ", ")
}
