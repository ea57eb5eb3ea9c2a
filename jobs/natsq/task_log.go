package natsq

import "log/slog"

// logger returns the logger of a task, whose lines are also stored as the log of the job. It makes
// the logger at the first call, because most jobs log nothing.
func (w *Worker) logger(t *task) *slog.Logger {
	t.logOnce.Do(func() {
		t.lines = w.logs.Lines(t.id, t.attempt, w.Name, t.job.ResultTTL)
		t.logger = slog.New(slog.NewMultiHandler(t.log.Handler(), slog.NewJSONHandler(t.lines, nil)))
	})
	if t.logger == nil { // the task is over
		return t.log
	}
	return t.logger
}

// lastLine returns the logger of a task for the line that says why its attempt ended without a
// result. The log of the job keeps that line also when the handler has used up the room for its
// own.
func (w *Worker) lastLine(t *task) *slog.Logger {
	log := w.logger(t)
	if t.lines != nil {
		t.lines.KeepNext()
	}
	return log
}

// endLog stores the rest of the log of a task. A later call of logger returns the logger of the
// worker.
func (w *Worker) endLog(t *task) {
	t.logOnce.Do(func() {})
	if t.lines != nil {
		t.lines.End()
	}
}
