package jail

import (
	"context"
	"errors"
	"strings"
)

// Probe starts a jail and reports each isolation layer of this machine.
func Probe(ctx context.Context) Report {
	j, err := Start(ctx, Spec{})
	if err != nil {
		return refused(err)
	}
	isolation := j.Isolation()
	report := Report{Full: true}
	for _, name := range isolation.Layers {
		report.Layers = append(report.Layers, Layer{Name: name, Active: true})
	}
	for _, limit := range isolation.Limits {
		name, by, _ := strings.Cut(limit, ": ")
		layer := Layer{Name: "limit " + name, Active: true, Detail: by}
		if strings.HasPrefix(by, notHeld) {
			layer.Active, layer.Fix = false, holdFix
		}
		report.Layers = append(report.Layers, layer)
	}
	if err := j.Close(); err != nil {
		report.Full = false
		report.Layers = append(report.Layers, Layer{Name: "clean end", Detail: err.Error(), Fix: "remove what is named by hand"})
	}
	return report
}

func refused(err error) Report {
	if miss, ok := errors.AsType[*MissingError](err); ok {
		return Report{Layers: []Layer{{Name: miss.Layer, Detail: miss.Detail, Fix: miss.Fix}}}
	}
	return Report{Layers: []Layer{{Name: "jail", Detail: err.Error(), Fix: "this is not a setting; report it"}}}
}
