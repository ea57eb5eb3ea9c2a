package twins

// WithoutVectors runs f with routines in Go in place of package lanes. Tests that call it are not
// parallel.
func WithoutVectors(f func()) {
	was := vectors
	vectors = false
	defer func() { vectors = was }()
	f()
}
