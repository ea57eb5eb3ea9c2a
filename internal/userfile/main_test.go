package userfile

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/leak"
)

func TestMain(m *testing.M) { leak.Check(m) }
