// Package drivers registers the drivers of object stores and databases when it is imported: s3://, gs://,
// postgres:// and sqlite:. Commands import it, and the tests that need a driver. Any other program
// that did would link the clients of the clouds and databases.
package drivers

import (
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	_ "github.com/exoswarm/exoswarm/internal/base/objectstore/cloud" // s3:// and gs://
)

func init() {
	remote.RegisterDatabase("postgres", postgresDriver{})
	remote.RegisterDatabase("sqlite", sqliteDriver{})
}
