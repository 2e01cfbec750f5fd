package cron

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"io"
	"sync"
	"time"
)

// ZoneVersion is the release of the IANA database in zoneinfo.zip, which is
// lib/time/zoneinfo.zip of Go 1.26.8. To update it, copy the file, and the version from
// lib/time/update.bash.
const ZoneVersion = "2025c"

//go:embed zoneinfo.zip
var zoneinfo []byte

// database is the files of zoneinfo.zip by name.
var database = sync.OnceValues(func() (map[string]*zip.File, error) { //nolint:gochecknoglobals // read once, then constant
	r, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		return nil, err
	}
	files := make(map[string]*zip.File, len(r.File))
	for _, f := range r.File {
		files[f.Name] = f
	}
	return files, nil
})

// load returns a zone of the database. time.LoadLocation would read ZONEINFO and the
// files of the machine first.
func load(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	files, err := database()
	if err != nil {
		return nil, err
	}
	f := files[name]
	if f == nil {
		return nil, errNoZone
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(name, b)
}
