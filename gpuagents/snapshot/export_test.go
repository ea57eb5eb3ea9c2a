package snapshot

// What tests use beyond the API: files of another length, and the parser of headers.
var (
	SaveFiles  = save
	ReadHeader = readHeader
)

// Header is the bytes of a header.
func Header(descr string, rows, width int64) []byte { return array{descr, rows, width}.header() }

// Told is the content of a header.
func (a array) Told() (descr string, rows, width int64) { return a.descr, a.rows, a.width }
