package rows

import (
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/leak"
)

func TestMain(m *testing.M) {
	leak.Check(m)
}
