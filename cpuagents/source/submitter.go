package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
)

// SubmitterURI is the URI of a source whose documents come from the submitter of the job, such as
// the standard input of exoswarm run.
const SubmitterURI = "submitter:"

// A job requests document N of its submitter with the message InputRequest(N). The submitter
// answers with InputWait while it has none, with InputEnd when no document follows, or with
// InputDocument and the document. It keeps document N until N+1 is requested, because a job that
// failed before it stored N requests N again.
const (
	InputWait     = "wait"
	InputEnd      = "end"
	InputDocument = "document\n"

	inputRequest = "input "
)

// MaxInputDocument is the most bytes of a document of the submitter. One message of NATS holds it,
// with the default limit of a server.
const MaxInputDocument = 480 << 10

const (
	// inputAnswer bounds the time to an answer of the submitter, which answers InputWait earlier.
	inputAnswer = 5 * time.Second
	// inputPatience is the time that the submitter may be silent. After it the input has ended.
	inputPatience = 30 * time.Second
)

// InputRequest returns the message that requests document number n, counted from 1.
func InputRequest(n uint64) []byte { return strconv.AppendUint([]byte(inputRequest), n, 10) }

// ParseInputRequest returns the number of the document that a message requests. ok is false for a
// message that is something else.
func ParseInputRequest(message []byte) (n uint64, ok bool) {
	text, ok := bytes.CutPrefix(message, []byte(inputRequest))
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	return n, err == nil && n > 0
}

type submittedFetcher struct {
	passive
	queue  Queue
	log    *slog.Logger
	job    string
	format rows.Format
}

// submittedState is the state of a position: the number of the last document.
type submittedState struct {
	Document uint64 `json:"document"`
}

// newSubmittedFetcher returns a fetcher of the documents of job's submitter.
func newSubmittedFetcher(job string, format rows.Format, s Resources) (*submittedFetcher, error) {
	format = cmp.Or(format, "csv")
	if format != "csv" && format != "ndjson" {
		return nil, badSource(SubmitterURI)("format %s: a submitter sends csv or ndjson", format)
	}
	return &submittedFetcher{queue: s.Queue, log: s.Logger, job: job, format: format}, nil
}

func (f *submittedFetcher) close() error { return nil }

// fetch implements fetcher. A submitter that is silent for inputPatience has ended, and the input
// with it.
func (f *submittedFetcher) fetch(ctx context.Context, at position, _ string, doc *os.File) (position, error) {
	var st submittedState
	if err := at.decode("source "+SubmitterURI, &st); err != nil {
		return at, err
	}
	st.Document++
	// The end is stored in the journal like a document, so a later attempt asks for nothing more.
	end := position{State: at.State, Exact: true, Done: true}
	for heard := time.Now(); ; {
		one, cancel := context.WithTimeout(ctx, inputAnswer)
		answer, err := f.queue.SendRows(one, f.job, InputRequest(st.Document))
		cancel()
		document, ok := bytes.CutPrefix(answer, []byte(InputDocument))
		switch {
		case ctx.Err() != nil:
			return at, context.Cause(ctx)
		case err == nil && ok:
			if _, err := doc.Write(document); err != nil {
				return at, files.ScratchError("write", "a temporary file", err)
			}
			return position{Format: f.format, Exact: true}.with("source "+SubmitterURI, st)
		case err == nil && string(answer) == InputEnd:
			return end, nil
		case err == nil && string(answer) == InputWait:
			heard = time.Now()
			continue
		case time.Since(heard) > inputPatience:
			f.log.Warn("the submitter of a job sends no input any more: the input ends here",
				"job", f.job, "documents", st.Document-1, "error", err)
			return end, nil
		}
		if err := retry.Sleep(ctx, 200*time.Millisecond); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return at, err
		}
	}
}
