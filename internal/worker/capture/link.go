package capture

import (
	"context"
	"fmt"
)

// Links returns the targets of the symbolic links of a tree, by their paths.
func (r *Repo) Links(ctx context.Context, name string) (links map[string]string, err error) {
	defer wrap(&err, "links")
	o, err := r.openObjects(ctx)
	if err != nil {
		return nil, err
	}
	defer o.close()
	t, err := o.tree(name)
	if err != nil {
		return nil, err
	}
	links = map[string]string{}
	for _, f := range t.files {
		if f.mode != modeLink {
			continue
		}
		_, _, target, err := o.get(f.id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Printable(f.path), r.incomplete(err))
		}
		links[f.path] = string(target)
	}
	return links, nil
}
