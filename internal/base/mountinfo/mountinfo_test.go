package mountinfo

import (
	"slices"
	"testing"
)

const machine = `22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:22 / /run rw - tmpfs tmpfs rw
24 22 8:1 / /mnt/disk rw - ext4 /dev/sda1 rw
25 22 8:1 /state /var/lib/bailiwick rw - ext4 /dev/sda1 rw
26 22 254:0 /home/ann/src /srv/a\040b rw - ext4 /dev/vda rw
27 22 0:23 / /srv/covered rw - tmpfs tmpfs rw
28 22 254:0 /opt /srv/covered rw - ext4 /dev/vda rw
29 23 254:0 / /run/host rw - ext4 /dev/vda rw
30 22 0:22 /user /srv/run rw - tmpfs tmpfs rw
31 22 254:0 /etc/secret /srv/file rw - ext4 /dev/vda rw
`

// proves R-S1
func TestNamesOfOnePlace(t *testing.T) {
	table, err := Parse(machine)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string][]string{
		"/home/ann/src/x":       {"/srv/a b/x"},
		"/srv/a b":              {"/home/ann/src"},
		"/home/ann":             nil,
		"/mnt/disk/state/store": {"/var/lib/bailiwick/store"},
		"/mnt/disk":             nil, // contains the place: its other name is below this one
		"/var/lib/bailiwick":    {"/mnt/disk/state"},
		"/var":                  {"/mnt/disk/state"},
		"/srv/covered/tool":     {"/opt/tool"},
		"/srv/run/1000":         {"/run/user/1000"},
		"/srv":                  {"/home/ann/src", "/opt", "/run/user", "/etc/secret"},
		"/srv/file":             {"/etc/secret"},
		"/run/host/usr":         {"/usr"},
		"/usr":                  nil,
	} {
		if got := table.Names(p); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
	}
	if !table.Below("/mnt") || !table.Below("/srv") || table.Below("/srv/file") || table.Below("/mn") || table.Below("/opt") {
		t.Error("mounts below")
	}
	if _, err := Parse("22 1 254:0 /\n"); err == nil {
		t.Error("a short line is accepted")
	}
}

func TestTheOwnTableHasARoot(t *testing.T) {
	table, err := Read()
	if err != nil || table.holds("/") == nil {
		t.Errorf("%v %v", table, err)
	}
}
