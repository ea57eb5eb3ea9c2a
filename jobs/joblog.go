package jobs

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// Bounds of what is kept of a job's log, for each attempt. Lines above them are dropped and
// counted.
const (
	MaxLogLine  = 4 << 10   // bytes of a line; a longer one is cut
	MaxLogLines = 1000      // lines
	MaxLogBytes = 256 << 10 // bytes of all lines
	// MaxLogMessage is the largest message with lines, in bytes.
	MaxLogMessage = 64 << 10
)

// Messages of the lines that a worker itself writes into the log of a job when an attempt ends
// without a result. The field "error" is why it ended. So a job that no worker runs, and whose
// attempt has neither line, has lost its worker.
const (
	// LogNextAttempt: the attempt failed; the field "pause" is how long the job waits, in nanoseconds.
	LogNextAttempt = "job will be tried again"
	// LogGivenBack: the worker drains, or cannot do jobs for now.
	LogGivenBack = "job given back"
)

// LogLines are lines that a handler has logged in one attempt at a job, in order.
type LogLines struct {
	Version int    `json:"v"`
	JobID   string `json:"job"`
	Attempt int    `json:"attempt"`
	Worker  string `json:"worker"`
	// Lines are JSON objects with time, level, msg and the fields that the handler added.
	Lines []json.RawMessage `json:"lines,omitempty"`
	// Dropped is how many lines of the attempt had no room so far.
	Dropped int `json:"dropped,omitempty"`
}

// LogLine is what every line has.
type LogLine struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`
	Message string    `json:"msg"`
}

// DecodeLogLines reads a message of a job's log.
func DecodeLogLines(data []byte) (LogLines, error) {
	var l LogLines
	if len(data) > MaxLogMessage {
		return l, Errorf(CodeInvalid, "log: a message of %d bytes: at most %d are taken", len(data), MaxLogMessage)
	}
	if err := CheckJSON(data); err != nil {
		return l, err
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return LogLines{}, Errorf(CodeInvalid, "log: %v", err)
	}
	if l.Version != Version {
		return LogLines{}, Errorf(CodeVersion, "log of job %q speaks protocol version %d, this side %d: update the "+
			"older side", l.JobID, l.Version, Version)
	}
	if len(l.Lines) > MaxLogLines || l.Attempt < 0 || l.Dropped < 0 {
		return LogLines{}, Errorf(CodeInvalid, "log of job %q: %d lines of attempt %d, %d dropped: use 0 to %d "+
			"lines and no negative numbers", l.JobID, len(l.Lines), l.Attempt, l.Dropped, MaxLogLines)
	}
	for i, line := range l.Lines {
		var one LogLine
		if err := json.Unmarshal(line, &one); err != nil {
			return LogLines{}, Errorf(CodeInvalid, "log of job %q: line %d: %v", l.JobID, i+1, err)
		}
	}
	return l, nil
}

type loggerKey struct{}

// Logger returns the logger of the job whose handler got ctx. Its lines from slog.LevelInfo on are
// kept as long as the job's result, and the worker logs them too. It never blocks and never fails,
// and drops what is too much. In a batch it is the first job's. Without a job it takes nothing.
func Logger(ctx context.Context) *slog.Logger { return LoggerOf(ctx, 0) }

// LoggerOf is Logger for job i of a batch.
func LoggerOf(ctx context.Context, i int) *slog.Logger {
	if of, ok := ctx.Value(loggerKey{}).(func(int) *slog.Logger); ok {
		return of(i)
	}
	return slog.New(slog.DiscardHandler)
}

// WithLoggers returns ctx with the loggers of jobs, for a queue that calls a handler. of may be
// called from several goroutines.
func WithLoggers(ctx context.Context, of func(i int) *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, of)
}
