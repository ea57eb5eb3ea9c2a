package testkit

// Failer is the part of a test that NoError uses. A *testing.T, a *testing.B and a *rapid.T have
// it.
type Failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// NoError ends a test in which a call has failed.
func NoError(t Failer, call string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v, want no error", call, err)
	}
}
