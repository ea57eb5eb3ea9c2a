package main

import (
	"os"
	"testing"
)

// TestCurrent: the code writes the dashboards of the repository.
func TestCurrent(t *testing.T) {
	for _, d := range Dashboards() {
		want, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		file := "../../deploy/grafana/" + d.UID + ".json"
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not current: go run -C tools ./grafana", file)
		}
	}
}
