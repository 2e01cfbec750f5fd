package store

import (
	"context"
	"testing"
)

func TestSmoke(t *testing.T) {
	cfg := Config{Dir: t.TempDir() + "/a ?&b", Migrations: []Migration{{"pair", []string{"CREATE TABLE a (id INTEGER PRIMARY KEY, v TEXT) STRICT"}}}}
	s, err := Create(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		if err := s.Update(context.Background(), func(tx *Tx) error { _, err := tx.Exec("INSERT INTO a(v) VALUES (?)", "x"); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(context.Background(), cfg); err == nil {
		t.Fatal("second")
	} else {
		t.Log(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := s.Read(context.Background(), func(v *View) error { return v.Get("SELECT count(*) FROM a", nil, &n) }); err != nil || n != 5000 {
		t.Fatal(err, n)
	}
	s.Close()
}
