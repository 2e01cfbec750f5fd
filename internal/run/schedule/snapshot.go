package schedule

import (
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// Snapshot is what a catalog revision says about schedules.
type Snapshot struct {
	Number    uint64
	Digest    api.Digest
	CreatedAt time.Time
	Schedules map[api.Name]api.Schedule
	Artifact  func(api.Name) api.Digest // of a schedule
}

// SnapshotOf returns that of a revision; of none, one without schedules.
func SnapshotOf(rev *catalog.Revision) *Snapshot {
	if rev == nil {
		return &Snapshot{Artifact: func(api.Name) api.Digest { return "" }}
	}
	return &Snapshot{
		Number: rev.Number(), Digest: rev.Digest(), CreatedAt: rev.CreatedAt(), Schedules: rev.Set().Schedules,
		Artifact: func(n api.Name) api.Digest {
			e, err := rev.Entry(api.KindSchedule, n)
			if err != nil {
				return ""
			}
			return e.Digest
		},
	}
}

// owner returns the schedule that a run id belongs to.
func (s *Snapshot) owner(id api.RunID) (api.Name, bool) {
	if api.ScheduleStemOf(id) == "" {
		return "", false
	}
	names := make([]api.Name, 0, 1)
	for n := range s.Schedules {
		if api.IsScheduleRun(n, id) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return slices.Min(names), true
}
