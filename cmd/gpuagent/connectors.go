//go:build connectors

package main

import (
	_ "github.com/exoswarm/exoswarm/internal/base/objectstore/cloud" // s3:// and gs://
)
