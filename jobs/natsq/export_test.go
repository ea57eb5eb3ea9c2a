package natsq

// Paused reports whether the worker has heard that jobs of a kind are paused.
func (w *Worker) Paused(kind string) bool { return w.ctl.paused(kind) }
