// Package drivers registers the clients of object stores, databases and brokers when it is
// imported: s3://, gs://, postgres://, sqlite: and kafka://. Commands with the build tag connectors
// import it, and the tests that need a client. Any other program that did would link these clients.
package drivers

import (
	"github.com/exoswarm/exoswarm/cpuagents/kafka"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	_ "github.com/exoswarm/exoswarm/internal/base/objectstore/cloud" // s3:// and gs://
)

func init() {
	remote.RegisterDatabase("postgres", postgresDriver{})
	remote.RegisterDatabase("sqlite", sqliteDriver{})
	remote.RegisterTopics("kafka", func(o remote.TopicOptions) (remote.Topic, error) { return kafka.New(o) })
}
