package remote

import (
	"errors"
	"strings"
	"testing"
)

// TestNoDriver: a scheme without a driver is an error that says what is missing and how to get
// it. No driver is imported by this test.
func TestNoDriver(t *testing.T) {
	for _, scheme := range []string{"postgres", "sqlite", "odd"} {
		_, err := DatabaseDriver(scheme)
		if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "-tags connectors") {
			t.Errorf("DatabaseDriver(%s): got %v, want how to get it", scheme, err)
		}
	}
}

// TestNoTopics: as TestNoDriver, for topics of brokers.
func TestNoTopics(t *testing.T) {
	_, err := OpenTopic("kafka", TopicOptions{})
	if !errors.Is(err, ErrNoDriver) || !strings.HasPrefix(err.Error(), "kafka: ") {
		t.Errorf("OpenTopic: got %v, want how to get the driver", err)
	}
	RegisterTopics("test", func(TopicOptions) (Topic, error) { return nil, nil })
	if _, err := OpenTopic("test", TopicOptions{}); err != nil {
		t.Errorf("OpenTopic: got %v, want no error", err)
	}
}

// TestRegister: a scheme has one driver.
func TestRegister(t *testing.T) {
	RegisterDatabase("test", nil)
	defer func() {
		if recover() == nil {
			t.Error("a second driver replaces the first one")
		}
	}()
	RegisterDatabase("test", nil)
}
