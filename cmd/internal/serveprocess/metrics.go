package serveprocess

import (
	"github.com/exoswarm/exoswarm/internal/command"
)

// Families returns the metric families of exoswarm ui, and of exoswarm serve without its agents,
// whether they have series at present or not.
func Families() ([]command.Family, error) {
	r, err := command.Describe("exoswarm")
	if err != nil {
		return nil, err
	}
	err = r.Register(newExporter(nil))
	return r.Families(), err
}
