package source

import (
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// Series is one series and its source. It is an entry of the manifest of a job. Only the
// specification for the kind of the URI is used. Name is unique in a job.
type Series struct {
	Name string `json:"name"`
	URI  string `json:"uri"`
	// Format of its rows. If it is empty, the extension of URI decides, and CSV if that stands for
	// no format.
	Format rows.Format `json:"format,omitempty"`
	// CSV is the dialect of its CSV files; nil for the dialect of the columns of the job.
	CSV *dialect.CSV `json:"csv,omitempty"`
	// HTTP is for a URI that begins with http:// or https://.
	HTTP *HTTPSpec `json:"http,omitempty"`
	// SQL is for a URI that begins with sqlite: or postgres://. It is required then.
	SQL *SQLSpec `json:"sql,omitempty"`
	// Watch is for a URI that begins with watch:.
	Watch *WatchSpec `json:"watch,omitempty"`
	// Object is for a URI that begins with s3:// or gs://.
	Object *ObjectSpec `json:"object,omitempty"`
	// NATS is for a URI that begins with nats:. It is required then.
	NATS *SubjectSpec `json:"nats,omitempty"`
	// Kafka is for a URI that begins with kafka://.
	Kafka *KafkaSpec `json:"kafka,omitempty"`
	// MQTT is for a URI that begins with mqtt:// or mqtts://.
	MQTT *MQTTSpec `json:"mqtt,omitempty"`
	// Push is for a URI that begins with push:. It is required then.
	Push *PushSpec `json:"push,omitempty"`
}

// Order returns the order of the rows of the source, for a caller that knows the entities.
func (s Series) Order(of rows.ColumnSpec) *rows.Order {
	format := s.Format
	if format == "" {
		format, _ = rows.FormatOf(s.URI, "csv")
	}
	return rows.NewOrder(s.columns(of), format)
}

func (s Series) columns(of rows.ColumnSpec) rows.ColumnSpec {
	if s.CSV != nil {
		of.CSV, of.Local = s.CSV, nil
	}
	return of
}
