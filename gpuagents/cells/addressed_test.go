package cells

import (
	"errors"
	"strings"
	"testing"
)

func TestAddressRefuses(t *testing.T) {
	for _, c := range []struct {
		cell                         string
		values                       map[string]float64
		agents, features, candidates int
		want                         string
	}{
		{"predictor", nil, 8, 1, 2, "cannot be addressed"},
		{"gru", map[string]float64{"hiden": 8}, 8, 1, 2, `did you mean "hidden"?`},
		{"gru", map[string]float64{"hidden": 33}, 8, 1, 2, "hidden = 33, want 1 to 32"},
		{"gru", map[string]float64{"hidden": 9}, 8, 17, 2, "17 features, want 1 to 16"},
		{"gru", nil, 8, 1, 17, "17 candidates, want 2 to 16"},
		{"gru", nil, 0, 1, 2, "0 agents a group"},
		{"leaky", nil, 8, 3, 2, "3 features, want 1 to 2"},
		{"leaky", nil, 8, 1, 3, "3 candidates, want 2"},
		{"leaky", map[string]float64{"decay": 1}, 8, 1, 2, "decay = 1, want 0 to 0.9999"},
	} {
		_, err := Address(c.cell, c.values, c.agents, c.features, c.candidates, Voting{})
		if !errors.Is(err, ErrParameter) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
}
