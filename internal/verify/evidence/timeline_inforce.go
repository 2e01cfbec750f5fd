package evidence

import (
	"sort"

	"github.com/bailiwick-dev/bailiwick/api"
)

// change is a value from an entry on.
type change[T any] struct {
	from  uint64
	value T
}

// changes are the values that followed each other, in the order of the log.
type changes[T any] []change[T]

func (c *changes[T]) set(from uint64, value T) { *c = append(*c, change[T]{from, value}) }

// at returns the value in force at entry n; the zero value before the first.
func (c changes[T]) at(n uint64) (value T) {
	if k := sort.Search(len(c), func(k int) bool { return c[k].from > n }); k > 0 {
		return c[k-1].value
	}
	return value
}

// ceilings are the tiers that operators consented to.
type ceilings map[api.Principal]*changes[api.Tier]

func (c ceilings) set(from uint64, p api.Principal, t api.Tier) {
	if c[p] == nil {
		c[p] = &changes[api.Tier]{}
	}
	c[p].set(from, t)
}

func (c ceilings) at(n uint64, p api.Principal) api.Tier {
	if c[p] == nil {
		return 0
	}
	return c[p].at(n)
}

// stops are the emergency stops by what they cover, so that a decision costs the
// same however many there are.
type stops struct {
	lines map[stopKey]*stopLine
	ids   map[string][]stopKey // of those not lifted, by id
}

// stopKey is what a stop covers. Everything has no name.
type stopKey struct {
	scope api.StopScope
	name  string
}

type stopLine struct {
	engaged []string        // ids in order; some are lifted
	lifted  map[string]bool //
	inForce changes[inForce]
}

// inForce is one of the stops in force, if any.
type inForce struct {
	id  string
	any bool
}

func newStops() stops { return stops{map[stopKey]*stopLine{}, map[string][]stopKey{}} }

// keyOf is what api.Stop.Covers compares.
func keyOf(s api.Stop) stopKey {
	switch s.Scope {
	case api.StopPrincipal, api.StopTarget, api.StopRun, api.StopDispatch:
		return stopKey{s.Scope, s.Name}
	case api.StopSchedule:
		return stopKey{s.Scope, api.ScheduleStem(api.Name(s.Name))}
	case api.StopAll:
	}
	return stopKey{scope: api.StopAll} // an unknown scope covers everything
}

// keysOf are the stops that cover w.
func keysOf(w api.StopSubject) []stopKey {
	return []stopKey{{scope: api.StopAll}, {api.StopPrincipal, string(w.Principal)}, {api.StopTarget, string(w.Target)}, {api.StopRun, string(w.Run)}, {api.StopDispatch, string(w.Dispatch)}, {api.StopSchedule, api.ScheduleStemOf(w.Run)}}
}

func (s *stops) engage(from uint64, stop api.Stop) {
	key := keyOf(stop)
	line := s.lines[key]
	if line == nil {
		line = &stopLine{lifted: map[string]bool{}}
		s.lines[key] = line
	}
	delete(line.lifted, stop.ID)
	line.engaged = append(line.engaged, stop.ID)
	line.inForce.set(from, inForce{stop.ID, true})
	s.ids[stop.ID] = append(s.ids[stop.ID], key)
}

// lift lifts every stop with an id.
func (s *stops) lift(from uint64, id string) {
	for _, key := range s.ids[id] {
		line := s.lines[key]
		line.lifted[id] = true
		for n := len(line.engaged); n > 0 && line.lifted[line.engaged[n-1]]; n-- {
			line.engaged = line.engaged[:n-1]
		}
		left := inForce{}
		if n := len(line.engaged); n > 0 {
			left = inForce{line.engaged[n-1], true}
		}
		line.inForce.set(from, left)
	}
	delete(s.ids, id)
}

// covering returns the id of a stop in force at entry n that covers w.
func (s *stops) covering(n uint64, w api.StopSubject) (id string, ok bool) {
	for _, key := range keysOf(w) {
		if line := s.lines[key]; line != nil {
			if one := line.inForce.at(n); one.any {
				return one.id, true
			}
		}
	}
	return "", false
}
