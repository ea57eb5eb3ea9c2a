package natsq

import "log/slog"

// logger makes the logger of a task at its first use.
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

// endLog stores the rest of a task's log.
func (w *Worker) endLog(t *task) {
	t.logOnce.Do(func() {})
	if t.lines != nil {
		t.lines.End()
	}
}
