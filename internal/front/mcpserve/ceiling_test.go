package mcpserve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
)

const capabilitiesKey = mcp.MetaKeyClientCapabilities

// A ceiling is refused where it would have no effect, and accepted where it is read
// and in the arguments of a tool.
//
// proves R-T5
func TestACeilingIsReadOrRefused(t *testing.T) {
	key := `"` + ceilingKey + `":"observe"`
	for text, accepted := range map[string]bool{
		// Where it is read.
		`initialize {"_meta":{` + key + `}}`:                                                                                   true,
		`initialize {"capabilities":{"experimental":{` + key + `}}}`:                                                           true,
		`initialize {"capabilities":{"experimental":{"` + ceilingKey + `":{"ceiling":"observe"}}}}`:                            true,
		`initialize {"capabilities":{"extensions":{"io.bailiwick/other":{"consentCeiling":1}}}}`:                               true, // counts as the lowest
		`tools/call {"name":"x","_meta":{` + key + `}}`:                                                                        true,
		`tools/call {"name":"x","_meta":{"` + capabilitiesKey + `":{"experimental":{` + key + `}}}}`:                           true,
		`tools/list {"_meta":{` + key + `}}`:                                                                                   true,
		`tools/call {"name":"x","arguments":{"consentCeiling":1,"input":{` + key + `}}}`:                                       true, // the tool validates it
		`tools/call {"name":"x","_meta":{"example/userConsent":"given","example/ceiling":3}}`:                                  true,
		`tools/call {"name":"the ceiling of io.bailiwick/consentCeiling"}`:                                                     true,
		`initialize {"consentCeiling":"observe"}`:                                                                              false,
		`initialize {"ConsentCeiling":"observe"}`:                                                                              false,
		`initialize {` + key + `}`:                                                                                             false,
		`initialize {"capabilities":{` + key + `}}`:                                                                            false,
		`initialize {"capabilities":{"Experimental":{` + key + `}}}`:                                                           false,
		"initialize {\"capabilitie\u017f\":{\"experimental\":{" + key + "}}}":                                                  false,
		`initialize {"capabilities":{"experimental":{"consentCeiling":{"ceiling":"observe"}}}}`:                                false,
		`initialize {"capabilities":{"experimental":{"bailiwick":{"consent_ceiling":"observe"}}}}`:                             false,
		`initialize {"capabilities":{"experimental":[{` + key + `}]}}`:                                                         false,
		`initialize {"clientInfo":{"name":"x",` + key + `}}`:                                                                   false,
		`initialize {"_META":{` + key + `}}`:                                                                                   false,
		`initialize {"_meta":{"consentCeiling":"observe"}}`:                                                                    false,
		`initialize {"_meta":{"` + capabilitiesKey + `":{"experimental":{` + key + `}}}}`:                                      false,
		`tools/call {"name":"x","consentCeiling":"observe"}`:                                                                   false,
		`tools/call {"name":"x","_meta":{"com.bailiwick/consentCeiling":"observe"}}`:                                           false,
		`tools/call {"name":"x","_meta":{"io.bailiwick.consent-ceiling":"observe"}}`:                                           false,
		"tools/call {\"name\":\"x\",\"_meta\":{\"con\u017fentCeiling\":\"observe\"}}":                                          false,
		`tools/call {"name":"x","_meta":{"a":{"b":[{` + key + `}]}}}`:                                                          false,
		`tools/call {"name":"x","_meta":{"` + capabilitiesKey + `":{` + key + `}}}`:                                            false,
		`tools/call {"name":"x","capabilities":{"experimental":{` + key + `}}}`:                                                false,
		`tools/call {"name":"x","Arguments":{` + key + `}}`:                                                                    false,
		`tools/list {"arguments":{` + key + `}}`:                                                                               false,
		`notifications/initialized {"_meta":{` + key + `}}`:                                                                    false,
		`notifications/cancelled {"requestId":1,"_meta":{"` + capabilitiesKey + `":{"experimental":{"consentCeiling":"x"}}}} `: false,
	} {
		method, params, _ := strings.Cut(text, " ")
		id := `"id":1,`
		if strings.HasPrefix(method, "notifications/") {
			id = ""
		}
		_, err := ParseMessage(fmt.Appendf(nil, `{"jsonrpc":"2.0",%s"method":%q,"params":%s}`, id, method, params))
		if (err == nil) != accepted {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil && !strings.Contains(err.Error(), "declare a ceiling as "+ceilingKey) {
			t.Errorf("%s: unexpected message: %v", text, err)
		}
	}
	if _, err := ParseMessage([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping","consentCeiling":"observe"}`)); err == nil {
		t.Error("beside params: accepted")
	}
	if _, err := ParseMessage([]byte(`{"jsonrpc":"2.0","id":1,"result":{"consentCeiling":"observe"}}`)); err != nil {
		t.Errorf("in a response: %v", err)
	}
}

// initialize is read by exact member names: another spelling of a member, which
// encoding/json would accept, does not replace it.
//
// proves R-T5
func TestOtherSpellingsDoNotReplaceACeiling(t *testing.T) {
	key := `"` + ceilingKey + `":"observe"`
	for _, text := range []string{
		`{"_meta":{` + key + `},"_Meta":null,"_META":{}}`,
		"{\"capabilities\":{\"experimental\":{" + key + "}},\"capabilitie\u017f\":{\"experimental\":null}}",
		"{\"capabilities\":{\"experimental\":{" + key + "}},\"capabilitie\u017f\":null}",
		"{\"capabilities\":{\"exten\u017fions\":null,\"extensions\":{" + key + "}}}",
	} {
		for _, read := range []func() (*api.Tier, error){
			func() (*api.Tier, error) { return ceilingOfInitialize(json.RawMessage(text)) },
			func() (*api.Tier, error) {
				m, err := ParseMessage([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + text + `}`))
				if err != nil {
					return nil, err
				}
				return m.Ceiling()
			},
		} {
			if got, err := read(); err != nil || got == nil || *got != api.Observe {
				t.Errorf("%s declares %v, %v", text, got, err)
			}
		}
	}
	// The control: encoding/json does replace it.
	var p mcp.InitializeParams
	if err := json.Unmarshal([]byte("{\"capabilities\":{\"experimental\":{"+key+"}},\"capabilitie\u017f\":{\"experimental\":null}}"), &p); err != nil || len(p.Capabilities.Experimental) != 0 {
		t.Errorf("the control reads %v, %v", p.Capabilities.Experimental, err)
	}
}

// proves R-T5
func TestMalformedCapabilitiesDoNotHideACeiling(t *testing.T) {
	req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: mcp.Meta{
		capabilitiesKey: map[string]any{"experimental": map[string]any{ceilingKey: "observe"}, "roots": 5},
	}}}
	if got := ceilingOfRequest(req); got == nil || *got != api.Observe {
		t.Errorf("declared ceiling: %v", got)
	}
}
